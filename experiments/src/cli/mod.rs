//! The command line. A plug-in's `main` registers its policies and calls [`main_with`]; the `treeline` binary does the
//! same with the built-in ones alone.
//!
//! Results go to stdout, log and progress to stderr. Exit codes:
//!
//! | code | meaning |
//! | --- | --- |
//! | 0 | done (also when the reader of stdout hung up) |
//! | 1 | something failed while it ran; a run whose other cells finished counts as failed |
//! | 2 | the command line or a file that it names is wrong; nothing was run |

mod advise;
mod calibrate;
mod doctor;
mod folder;
mod import;
mod interrupt;
mod optables;
mod out;
mod policies;
mod policy_new;
mod policy_try;
mod profiles;
mod report;
mod run;
mod target;
mod trace;
mod tree_text;

use crate::config::{self, ConfigError, Experiment, Overrides};
use crate::optables::ImportError;
use crate::run::Refused;
use crate::trace::TraceFileError;
use clap::{Args, Parser, Subcommand, ValueEnum};
use out::{HungUp, Out};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use treeline_policies::Registry;
use treeline_sim::optable::TableError;

const ABOUT: &str = "How large a draft tree pays: experiments on tree speculative decoding.";
const EXIT_CODES: &str = "Exit codes: 0 done, 1 something failed while it ran (a failed cell counts), 2 the command line or \
a file that it names is wrong.\nResults go to stdout, log and progress to stderr; NO_COLOR is respected.";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "treeline", version, about = ABOUT, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run an experiment and print its answer.
    Run(RunArgs),
    /// Draw the report of a finished run again; print its tables as Markdown, or write a picture.
    Report(report::ReportArgs),
    /// List the tree policies with their parameters and needs.
    Policies {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the shipped profiles, expert models and acceptance processes, or check and show one, or a file of yours, with a
    /// source per field.
    Profiles {
        /// Show this one: a shipped name, or the path of a TOML file, a checkpoint's folder or its config.json.
        name: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write a policy of your own, or look at the tree of one position.
    #[command(subcommand)]
    Policy(PolicyVerb),
    /// Say what this machine can run, and why not the rest.
    Doctor {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON schema of experiment files.
    Schema,
    /// Record traces and look into them.
    #[command(subcommand)]
    Trace(TraceVerb),
    /// Turn what other engines count into acceptance processes and cost curves.
    #[command(subcommand)]
    Import(import::ImportVerb),
    /// Say which policy and budget to run on a deployment, how sure that is, and the engines' flags for it.
    Advise(Box<advise::AdviseArgs>),
    /// Tables of measured operation times: import them, list them.
    #[command(subcommand)]
    Optables(optables::OptablesVerb),
    /// Measure what a step costs on this machine and print it as the [cost] section of an experiment.
    Calibrate {
        /// The experiment whose models, context and backend are measured.
        file: PathBuf,
        /// Measure every concurrency of the experiment and budgets up to its largest, and write a calibration file for
        /// `tier = "calibrated"` in place of the [cost] section.
        #[arg(long, short, value_name = "FILE")]
        out: Option<PathBuf>,
        /// No progress on stderr.
        #[arg(long, short)]
        quiet: bool,
    },
}

/// A backend on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BackendArg {
    /// Real models on the CPU.
    Cpu,
    /// Replay of a trace.
    Sim,
    /// The CUDA engine.
    Cuda,
}

impl BackendArg {
    fn kind(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Sim => "sim",
            Self::Cuda => "cuda",
        }
    }
}

#[derive(Debug, Args)]
struct RunArgs {
    /// The experiment.
    file: PathBuf,
    /// Run on this backend in place of the file's.
    #[arg(long, value_name = "KIND")]
    backend: Option<BackendArg>,
    /// Replay this trace (backend sim).
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Run folder; runs/NAME-TIME unless given.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on where a run stopped: in DIR, in --out, or in the newest run of this experiment.
    #[arg(long, value_name = "DIR", num_args = 0..=1)]
    resume: Option<Option<PathBuf>>,
    /// Feed policies that read time the measurements logged in this run folder, so that its run is repeated.
    #[arg(long, value_name = "DIR")]
    replay_observations: Option<PathBuf>,
    /// Print summary.json in place of the table.
    #[arg(long)]
    json: bool,
    /// No progress on stderr.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum PolicyVerb {
    /// Write a crate with a policy of your own, outside this workspace.
    New(policy_new::NewArgs),
    /// Print the tree that a policy draws at one position of a trace.
    Try(policy_try::TryArgs),
}

#[derive(Debug, Subcommand)]
enum TraceVerb {
    /// Decode an experiment's prompts plainly and record what was drafted at every position.
    Record(trace::RecordArgs),
    /// Sum up a trace.
    Info {
        /// The trace.
        file: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command line with the policies of `registry`.
#[must_use]
pub fn main_with(registry: Registry) -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version are results; both may meet a reader that has gone.
            let _ = e.print();
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2));
        }
    };
    let out = Out::detect();
    match dispatch(cli, &registry, &out) {
        Ok(code) => code,
        Err(e) if e.is::<HungUp>() => ExitCode::SUCCESS,
        Err(e) => {
            out.error(&e);
            let wrong_file = e.is::<ConfigError>() || e.is::<TraceFileError>() || e.is::<Refused>();
            let foreign = e.is::<crate::import::ImportError>() || e.is::<treeline_sim::accept::ProcessError>();
            let tables = e.is::<ImportError>() || e.is::<TableError>() || e.is::<treeline_sim::profile::ProfileError>();
            let refused = wrong_file || foreign || tables || e.is::<Usage>();
            ExitCode::from(if refused { 2 } else { 1 })
        }
    }
}

fn dispatch(cli: Cli, registry: &Registry, out: &Out) -> anyhow::Result<ExitCode> {
    match cli.verb {
        Verb::Run(args) => return run::run(&args, registry, out),
        Verb::Report(args) => report::run(&args, registry, out)?,
        Verb::Policies { json } => policies::list(registry, out, json)?,
        Verb::Profiles { name, json } => profiles::run(name.as_deref(), json, out)?,
        Verb::Policy(PolicyVerb::New(args)) => policy_new::new(&args, out)?,
        Verb::Policy(PolicyVerb::Try(args)) => policy_try::run(&args, registry, out)?,
        Verb::Doctor { json } => doctor::run(out, json)?,
        Verb::Schema => out.data(&config::schema_text(registry))?,
        Verb::Trace(TraceVerb::Record(args)) => trace::record(&args, registry, out)?,
        Verb::Trace(TraceVerb::Info { file, json }) => trace::info(&file, json, out)?,
        Verb::Import(verb) => import::run(&verb, out)?,
        Verb::Optables(verb) => optables::run(&verb, out)?,
        Verb::Calibrate { file, out: None, quiet } => calibrate::run(&file, quiet, registry, out)?,
        Verb::Calibrate { file, out: Some(to), quiet } => calibrate::write(&file, &to, quiet, registry, out)?,
        Verb::Advise(args) => return advise::run(&args, registry, out),
    }
    Ok(ExitCode::SUCCESS)
}

/// Loads an experiment; its error ends the program with code 2.
fn load(file: &Path, registry: &Registry, overrides: &Overrides) -> anyhow::Result<Experiment> {
    Ok(config::load_with(file, registry, overrides)?)
}

/// The command line asks for something that cannot be.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);
