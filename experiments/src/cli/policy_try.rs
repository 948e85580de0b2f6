//! `treeline policy try NAME --trace T`: the tree that a policy draws at one recorded position, and what came true.

use super::out::Out;
use super::{Usage, tree_text};
use crate::config::{Cost, Overrides};
use clap::Args;
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use treeline_core::log::Entry;
use treeline_core::round::{RoundSetup, Stage, check_fit, run_round};
use treeline_core::trace::Trace;
use treeline_core::{Admit, Batch, Engine as _, Law, Limits, Seq, StepCost, Tree};
use treeline_policies::Registry;
use treeline_sim::{ReplayEngine, check_policy, requests};

/// What to draw.
#[derive(Debug, Args)]
pub(super) struct TryArgs {
    /// The policy's kind (`treeline policies` lists them).
    name: String,
    /// The trace that the draft comes from.
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Emitted token of the response that is the root: 0 is the first.
    #[arg(long, default_value_t = 0, value_name = "N")]
    position: usize,
    /// Id of the request; the trace's first unless given.
    #[arg(long, value_name = "ID")]
    request: Option<u64>,
    /// Nodes of the tree, without the root.
    #[arg(long, default_value_t = 16, value_name = "NODES", value_parser = clap::value_parser!(u32).range(1..=4096))]
    budget: u32,
    /// A parameter of the policy, as in an experiment file; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Take the step cost from the [cost] section of this experiment, for policies that need one.
    #[arg(long, value_name = "EXPERIMENT")]
    cost: Option<PathBuf>,
}

/// Draws the tree.
pub(super) fn run(args: &TryArgs, registry: &Registry, out: &Out) -> anyhow::Result<()> {
    let params = params(&args.set)?;
    let trace = cut(crate::trace::read(&args.trace)?, args)?;
    let (depth, width) = (trace.meta.depth, trace.meta.width);
    let limits = Limits { budget: args.budget, depth, width, concurrency: 1 };
    let mut policy = registry.build(&args.name, &params, &limits).map_err(|e| Usage(e.to_string()))?;
    let cost = cost(args, registry)?;
    let oracle = cost.as_ref().map(|c| &c.curve as &dyn StepCost);
    let needs = policy.needs(&limits);
    check_policy(&args.name, &needs, &trace).map_err(|e| Usage(e.to_string()))?;

    let trace = Arc::new(trace);
    let mut engine = ReplayEngine::new(trace.clone(), 1)?;
    // The recorded truth is the verdict, whatever the law; greedy takes ranked candidates, and those are on record.
    let law = Law::Greedy;
    if needs.cost && oracle.is_none() {
        let why = "add --cost EXPERIMENT, a file with a [cost] section (`treeline calibrate` prints one)";
        return Err(Usage(format!("policy `{}` needs a step cost: {why}", args.name)).into());
    }
    check_fit(&args.name, &needs, &law, &engine.info(), oracle.is_some()).map_err(|e| Usage(e.to_string()))?;
    let request = &requests(&trace)[0];
    let Admit::Done { root, start } = engine.admit(0, request, &law)? else {
        anyhow::bail!("the replay wants a prompt, which no trace holds");
    };
    let seq = Seq {
        slot: 0,
        request: request.id,
        index: 0,
        start,
        root,
        left: request.max_new.saturating_sub(1),
        eos: request.eos.clone().into(),
        sampling: request.sampling,
        round: 0,
    };
    let batch = Batch { seqs: vec![seq] };
    let setup = RoundSetup { limits: &limits, law: &law, cost: oracle };
    let mut tree = Tree::default();
    let mut stage = Stage::default();
    let log = run_round(&mut engine, policy.as_mut(), &batch, &setup, &mut stage, 0, &mut |view| {
        tree = view.forest.tree(0).clone();
    })?;
    let entry = log.entries.first().ok_or_else(|| anyhow::anyhow!("the round has no entry"))?;
    out.data(&text(args, &trace, &tree, entry, out)?)
}

/// Parameters from `--set`: each value in TOML, or a bare word.
fn params(set: &[String]) -> anyhow::Result<Value> {
    let mut params = Map::new();
    for pair in set {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Usage(format!("--set {pair}: write KEY=VALUE")).into());
        };
        let (key, value) = (key.trim(), value.trim());
        let parsed = format!("v = {value}").parse::<toml::Table>().ok().and_then(|mut t| t.remove("v"));
        let value = match parsed {
            Some(value) => serde_json::to_value(value)?,
            None => Value::String(value.to_owned()),
        };
        if params.insert(key.to_owned(), value).is_some() {
            return Err(Usage(format!("--set {key} is given twice")).into());
        }
    }
    Ok(Value::Object(params))
}

/// The step cost, where an experiment is named for it.
fn cost(args: &TryArgs, registry: &Registry) -> anyhow::Result<Option<Cost>> {
    let Some(file) = &args.cost else { return Ok(None) };
    match super::load(file, registry, &Overrides::default())?.cost {
        Some(cost) => Ok(Some(cost)),
        None => Err(Usage(format!("{} has no [cost]", file.display())).into()),
    }
}

/// The trace cut to one request that starts at the position asked for.
fn cut(mut trace: Trace, args: &TryArgs) -> anyhow::Result<Trace> {
    let at = match args.request {
        None if trace.requests.is_empty() => None,
        None => Some(0),
        Some(id) => trace.requests.iter().position(|r| r.id == id),
    };
    let Some(at) = at else {
        let ids: Vec<String> = trace.requests.iter().take(8).map(|r| r.id.to_string()).collect();
        let more = if trace.requests.len() > ids.len() { ", …" } else { "" };
        let asked = args.request.map_or_else(|| "a first request".to_owned(), |id| format!("request {id}"));
        return Err(Usage(format!(
            "the trace has no {asked}; it has {} ({}{more})",
            trace.requests.len(),
            ids.join(", ")
        ))
        .into());
    };
    let mut request = trace.requests.swap_remove(at);
    let n = args.position;
    if n >= request.positions.len() {
        let (id, have) = (request.id, request.positions.len());
        return Err(Usage(format!(
            "request {id} has {have} positions, 0 to {}; there is no {n}",
            have.saturating_sub(1)
        ))
        .into());
    }
    request.positions.drain(..n);
    if !request.tokens.is_empty() {
        request.tokens.drain(..n.min(request.tokens.len()));
    }
    // n is below the number of positions, which is at most that of the emitted tokens.
    let n = n as u32;
    request.prompt_tokens += n;
    request.emitted -= n;
    request.max_new -= n;
    trace.requests = vec![request];
    Ok(trace)
}

/// Tree, expectation and truth.
fn text(args: &TryArgs, trace: &Trace, tree: &Tree, entry: &Entry, out: &Out) -> anyhow::Result<String> {
    let request = &trace.requests[0];
    let step = entry.result.as_ref().map_err(|fault| anyhow::anyhow!("{fault}"))?;
    let score = |node: u32| tree.scores()[node as usize];
    let label = |node: u32| {
        if node == 0 {
            return "root".to_owned();
        }
        let (at, parent) = (node as usize, tree.parents()[node as usize]);
        let token = if trace.meta.ids { format!("  token {}", tree.tokens()[at]) } else { String::new() };
        let q = (score(node) - score(parent)).exp();
        let line = format!("rank {}  q {q:.3}  path {:.3}{token}", tree.ranks()[at], score(node).exp());
        if step.path.contains(&node) { out.green(&format!("{line}  ✓")) } else { line }
    };
    let mut text = format!(
        "{}, budget {}: request {} ({}), position {} at {}\n\n",
        out.bold(&args.name),
        args.budget,
        request.id,
        request.domain,
        args.position,
        request.prompt_tokens,
    );
    text.push_str(&tree_text::draw(tree, &label));
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "\n{} nodes, {} deep. Expected tokens 1 + Φ = {:.2}, emitted {} (✓ accepted, then one that the target chose).",
        tree.nodes(),
        tree.depth(),
        1.0 + tree.expected_accepted(),
        step.emitted.len(),
    );
    if tree.nodes() == 0 {
        let _ = writeln!(text, "The policy drafts nothing here: it is the plain step.");
    }
    let ranks: Vec<String> =
        request.positions[0].truth.iter().map(|r| r.map_or_else(|| "–".to_owned(), |r| r.to_string())).collect();
    let note = format!("– is not among the {} ranks on record", trace.meta.width);
    let _ = writeln!(text, "True path, ranks by depth: {}  {}", ranks.join(" "), out.dim(&format!("({note})")));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn set_takes_toml_values_and_bare_words() {
        let check = |set: &[&str], expect: Value| {
            let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
            assert_eq!(params(&set).unwrap(), expect);
        };
        check(&["width=4", "scope = batch"], json!({ "width": 4, "scope": "batch" }));
        check(&["widths=[4, 2]", "x=0.5", "y=\"a=b\""], json!({ "widths": [4, 2], "x": 0.5, "y": "a=b" }));
        assert!(params(&["width".to_owned()]).is_err());
        assert!(params(&["a=1".to_owned(), "a=2".to_owned()]).is_err());
    }
}
