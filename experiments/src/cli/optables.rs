//! `treeline optables import|info`: tables of measured operation times.

use super::out::Out;
use crate::optables::{Package, import};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use treeline_sim::optable::{EXCLUDED, OpTables, Summary};

#[derive(Debug, Subcommand)]
pub(super) enum OptablesVerb {
    /// Write the slice of op tables that this program ships, from the package that measured them.
    Import(ImportArgs),
    /// List the op tables: what was measured, on what, within which domain.
    Info(InfoArgs),
}

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// The wheel of aiconfigurator-core 0.12.0 (pip download --no-deps aiconfigurator-core==0.12.0), or the folder it unpacks to.
    #[arg(value_name = "WHEEL_OR_FOLDER")]
    package: PathBuf,
    /// Where the files go.
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct InfoArgs {
    /// A folder of tables in place of the shipped ones.
    folder: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(verb: &OptablesVerb, out: &Out) -> anyhow::Result<()> {
    match verb {
        OptablesVerb::Import(args) => {
            let imported = import(&mut Package::open(&args.package)?, &args.out)?;
            for (path, bytes) in &imported.files {
                out.data(&format!("{bytes:>8}  {}", path.display()))?;
            }
            out.note(if imported.as_shipped {
                "the same as the shipped tables"
            } else {
                "not the same as the shipped tables"
            });
            Ok(())
        }
        OptablesVerb::Info(args) => info(args, out),
    }
}

fn info(args: &InfoArgs, out: &Out) -> anyhow::Result<()> {
    let read;
    let tables = match &args.folder {
        Some(folder) => {
            read = OpTables::read(folder)?;
            &read
        }
        None => OpTables::shipped(),
    };
    let summaries = tables.summaries();
    if args.json {
        let list: Vec<serde_json::Value> = summaries
            .iter()
            .map(|s| serde_json::json!({"op": s.op, "from": s.from, "what": s.what, "domain": s.domain, "points": s.points}))
            .collect();
        return out.json(&serde_json::json!({"digest": format!("{:016x}", tables.digest()), "tables": list}));
    }
    let width = |pick: fn(&Summary) -> &str| summaries.iter().map(|s| pick(s).len()).max().unwrap_or(0);
    let (op, from, what) = (width(|s| s.op), width(|s| &s.from), width(|s| &s.what));
    let mut text = String::new();
    for s in &summaries {
        text.push_str(&format!(
            "{:op$}  {:from$}  {:what$}  {} ({} points)\n",
            s.op, s.from, s.what, s.domain, s.points
        ));
    }
    for e in EXCLUDED {
        let system = e.system.unwrap_or("every machine");
        text.push_str(&format!("{}, {system}, {} {}: {}\n", e.op, e.engine, e.versions.join(", "), e.why));
    }
    text.push_str(&format!("digest {:016x}\n", tables.digest()));
    out.data(&text)
}
