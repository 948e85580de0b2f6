//! `treeline policies`: what can be compared.

use super::out::Out;
use serde_json::Value;
use std::fmt::Write as _;
use treeline_core::Limits;
use treeline_policies::{Listing, Parameter, Registry};

/// Limits that the listed needs hold for: a block of eight, 64 ranks, a tree of 64 nodes.
const LIMITS: Limits = Limits { budget: 64, depth: 7, width: 64, concurrency: 1 };

/// Prints the registered policies.
pub(super) fn list(registry: &Registry, out: &Out, json: bool) -> anyhow::Result<()> {
    let list = registry.list(&LIMITS)?;
    if json {
        return out.json(&list);
    }
    let mut text = String::new();
    for policy in &list {
        describe(&mut text, policy, out);
    }
    let _ = write!(
        text,
        "{}",
        out.dim(
            "Needs hold for a budget of 64 over 7 levels and 64 ranks. Write your own: `treeline policy new NAME`."
        )
    );
    out.data(&text)
}

fn describe(text: &mut String, policy: &Listing, out: &Out) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}  {}", out.bold(policy.kind), policy.about);
    let n = &policy.needs;
    let mut needs = vec![format!("{} levels × {} ranks", n.depth, n.width)];
    for (needed, what) in
        [(n.cost, "a step cost"), (n.time, "measured time"), (n.waves, "waves of expansions on a conditional drafter")]
    {
        if needed {
            needs.push(what.to_owned());
        }
    }
    let laws = if n.draws { "any law" } else { "laws of ranked candidates (greedy, sample-match)" };
    let _ = writeln!(text, "    needs {}; {laws}", needs.join(", "));
    for p in &policy.parameters {
        let _ = writeln!(text, "    {}  {}", out.green(&p.name), parameter(p));
    }
    text.push('\n');
}

fn parameter(p: &Parameter) -> String {
    let value = match (&p.default, p.required) {
        (_, true) => "required".to_owned(),
        (Some(Value::Null) | None, false) => "optional".to_owned(),
        (Some(default), false) => format!("default {default}"),
    };
    format!("({}, {value}) {}", p.ty, p.about)
}
