//! Tables that the package holds and this project does not ship, with the reason: a figure that is wrong is worse than none.

use super::key::Wish;

/// A family of tables left out.
#[derive(Clone, Copy, Debug)]
pub struct Excluded {
    /// The operation, as in messages.
    pub op: &'static str,
    /// The machine, `None` for all.
    pub system: Option<&'static str>,
    /// The engine.
    pub engine: &'static str,
    /// Its versions.
    pub versions: &'static [&'static str],
    /// A word of the remaining key (weights or cache format) that must occur.
    pub format: Option<&'static str>,
    /// Why.
    pub why: &'static str,
}

/// Everything left out on purpose.
pub const EXCLUDED: &[Excluded] = &[
    Excluded {
        op: "MoE layer",
        system: None,
        engine: "vllm",
        versions: &["0.18.0", "0.19.0", "0.22.0"],
        format: Some("int4_wo"),
        why: "left out: the INT4 Marlin rows of vLLM 0.18, 0.19 and 0.22 are 2 to 5 times slow or too few",
    },
    Excluded {
        op: "MLA decode",
        system: Some("h200"),
        engine: "vllm",
        versions: &["0.14.0"],
        format: None,
        why: "left out: the H200 MLA rows of vLLM 0.14 are host-bound noise",
    },
];

/// The reason a key was left out, if it was.
pub(crate) fn why(op: &str, wishes: &[Wish]) -> Option<&'static str> {
    let wish = |name: &str| wishes.iter().find(|(n, _)| *n == name).and_then(|(_, want)| want.as_deref());
    EXCLUDED
        .iter()
        .find(|e| {
            e.op == op
                && e.system.is_none_or(|s| wish("system") == Some(s))
                && wish("engine") == Some(e.engine)
                && wish("version").is_some_and(|v| e.versions.contains(&v))
                && e.format.is_none_or(|f| wishes.iter().any(|(_, want)| want.as_deref() == Some(f)))
        })
        .map(|e| e.why)
}
