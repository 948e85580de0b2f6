//! `treeline advise`: which policy and budget to run.

use super::Usage;
use super::out::Out;
use crate::advise::{self, Flags};
use crate::config::{self, Backend, Experiment, Overrides};
use crate::priced::Prepared;
use crate::results::Choice;
use anyhow::Context as _;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use treeline_policies::Registry;

/// What advice is asked for: an experiment with a deployment, or the same in flags.
#[derive(Debug, Args)]
pub(super) struct AdviseArgs {
    /// An experiment with [deployment] and [[acceptance]]; its policies and budgets are the candidates.
    #[arg(conflicts_with_all = ["deployment", "hardware", "model", "drafter", "tier", "calibration", "experts", "trace",
          "process", "tau", "concurrency", "context", "response", "requests", "most", "allow_extrapolation", "seed"])]
    file: Option<PathBuf>,
    /// Deployment profile, or a TOML file (`treeline profiles` lists the shipped ones).
    #[arg(long, value_name = "NAME")]
    deployment: Option<String>,
    /// Another description of the deployment's hardware: a TOML file with the same name.
    #[arg(long, value_name = "NAME")]
    hardware: Option<String>,
    /// Model profile, a TOML file, or a config.json.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Drafter profile, or a TOML file.
    #[arg(long, value_name = "NAME")]
    drafter: Option<String>,
    /// Which figures price a step: bound, table or calibrated.
    #[arg(long, value_name = "TIER", default_value = "table")]
    tier: String,
    /// The file of tier calibrated.
    #[arg(long, value_name = "FILE")]
    calibration: Option<String>,
    /// How distinct experts are counted, by name or TOML file; targets with experts need it.
    #[arg(long, value_name = "NAME")]
    experts: Option<String>,
    /// Acceptance: a recorded trace.
    #[arg(long, value_name = "FILE", conflicts_with = "process")]
    trace: Option<String>,
    /// Acceptance: a drafter–target process, by name or TOML file.
    #[arg(long, value_name = "NAME")]
    process: Option<String>,
    /// The τ that the process is scaled to: that of the drafter's whole chain, the bonus token included.
    #[arg(long, value_name = "TOKENS", requires = "process")]
    tau: Option<f64>,
    /// Requests at once, as in 1,8,32.
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    concurrency: Vec<u32>,
    /// Positions per request, as in 1024,16384 or 1k,16k; a trace has its own unless given.
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = positions)]
    context: Vec<u32>,
    /// Tokens of a response that a process generates.
    #[arg(long, value_name = "TOKENS", default_value_t = 512)]
    response: u32,
    /// Requests that a process generates.
    #[arg(long, value_name = "N", default_value_t = 64)]
    requests: u32,
    /// The most nodes of a tree that are compared.
    #[arg(long, value_name = "NODES", default_value_t = 64)]
    most: u32,
    /// Price steps outside of what was measured too; such rows are flagged.
    #[arg(long)]
    allow_extrapolation: bool,
    /// Seed of what a process generates.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// What runs today, as in chain:7, best-first:16 or plain: the advice says what changes.
    #[arg(long, value_name = "POLICY:BUDGET")]
    present: Option<String>,
    /// Write the advice as JSON to this file too.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON in place of the table.
    #[arg(long)]
    json: bool,
    /// No progress on stderr.
    #[arg(long, short)]
    quiet: bool,
}

/// Prints the advice.
pub(super) fn run(args: &AdviseArgs, registry: &Registry, out: &Out) -> anyhow::Result<ExitCode> {
    let present = args.present.as_deref().map(choice).transpose()?;
    let mut experiment = match &args.file {
        Some(file) => super::load(file, registry, &Overrides::default())?,
        None => {
            let text = flags(args)?.toml();
            config::load_text(&text, "flags", Path::new("."), registry, &Overrides::default())?
        }
    };
    let name = args.file.as_ref().map_or_else(|| "flags".to_owned(), |f| f.display().to_string());
    if let Some(present) = &present {
        add(&mut experiment, present, registry, &name)?;
    }
    let Backend::Priced(priced) = &experiment.backend else {
        let why = "it has no [deployment] to price: advice needs one, and an [[acceptance]]";
        return Err(Usage(format!("{name}: {why}")).into());
    };
    let prepared = Prepared::new(&experiment, priced)?;
    let progress = |text: &str| {
        if !args.quiet {
            out.note(text);
        }
    };
    if let Some(target) = &args.out {
        let flag = |text: &Option<String>| text.as_ref().map(PathBuf::from);
        let inputs = [args.file.clone(), flag(&args.trace), flag(&args.process), flag(&args.calibration)];
        super::target::writable(target, inputs.iter().flatten().map(PathBuf::as_path))?;
    }
    let advice =
        advise::advise(&prepared, present.as_ref(), &progress).map_err(|e| match e.downcast::<advise::Refusal>() {
            Ok(refusal) => Usage(format!("{name}: {refusal}")).into(),
            Err(e) => e,
        })?;
    // What took minutes is printed even where the file cannot be written.
    if args.json { out.json(&advice) } else { out.data(&advise::text(&advice)) }?;
    if let Some(file) = &args.out {
        let text = serde_json::to_string_pretty(&advice)?;
        std::fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(if advice.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `8192` or `8k`.
fn positions(text: &str) -> Result<u32, String> {
    let (digits, unit) = text.strip_suffix(['k', 'K']).map_or((text, 1), |digits| (digits, 1024));
    let n = digits.parse::<u32>().ok().and_then(|n| n.checked_mul(unit));
    n.ok_or_else(|| "expected positions, as in 8192 or 8k".to_owned())
}

/// `chain:7` or `plain`.
fn choice(text: &str) -> Result<Choice, Usage> {
    let wrong = || Usage(format!("--present `{text}`: write POLICY:BUDGET, as in chain:7, or plain"));
    if text == "plain" {
        return Ok(Choice { policy: text.to_owned(), budget: 0 });
    }
    let (policy, budget) = text.split_once(':').ok_or_else(wrong)?;
    let budget: u32 = budget.parse().map_err(|_| wrong())?;
    if policy.is_empty() || budget == 0 {
        return Err(wrong());
    }
    Ok(Choice { policy: policy.to_owned(), budget })
}

/// Adds what runs today to the candidates where it is none yet.
fn add(experiment: &mut Experiment, present: &Choice, registry: &Registry, name: &str) -> anyhow::Result<()> {
    if present.budget == 0 {
        anyhow::ensure!(experiment.baseline, Usage(format!("{name}: `baseline = false` leaves plain decoding out")));
        return Ok(());
    }
    if experiment.policies.iter().any(|p| p.kind == present.policy && p.budgets.contains(&present.budget)) {
        return Ok(());
    }
    let params = registry
        .resolve(&present.policy, &serde_json::json!({}))
        .map_err(|e| Usage(format!("--present {}:{}: {e}", present.policy, present.budget)))?;
    let budgets = vec![present.budget];
    experiment.policies.push(config::PolicySpec { kind: present.policy.clone(), budgets, params });
    Ok(())
}

fn flags(args: &AdviseArgs) -> Result<Flags, Usage> {
    let needed = |value: &Option<String>, flag: &str| {
        value
            .clone()
            .ok_or_else(|| Usage(format!("give an experiment file, or --{flag} and the other flags of a deployment")))
    };
    let (deployment, model, drafter) =
        (needed(&args.deployment, "deployment")?, needed(&args.model, "model")?, needed(&args.drafter, "drafter")?);
    let why = |text: &str| Err(Usage(text.to_owned()));
    if args.trace.is_none() && args.process.is_none() {
        return why(
            "nothing says what is accepted: give --trace FILE, or --process NAME with --tau; there is no default",
        );
    }
    if args.concurrency.is_empty() {
        return why("--concurrency is missing: requests at once, as in 1,8,32");
    }
    if args.process.is_some() && args.context.is_empty() {
        return why("--context is missing: a process has no prompts, give positions per request, as in 1024,16384");
    }
    if args.most == 0 {
        return why("--most 0 leaves nothing to compare with plain decoding: give at least 1 node");
    }
    Ok(Flags {
        deployment,
        hardware: args.hardware.clone(),
        model,
        drafter,
        tier: args.tier.clone(),
        calibration: args.calibration.clone(),
        experts: args.experts.clone(),
        trace: args.trace.clone(),
        process: args.process.clone(),
        tau: args.tau,
        concurrency: args.concurrency.clone(),
        context: args.context.clone(),
        response: args.response,
        requests: args.requests,
        most: args.most,
        extrapolate: args.allow_extrapolation,
        seed: args.seed,
    })
}
