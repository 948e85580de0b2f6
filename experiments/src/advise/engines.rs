//! How SGLang and vLLM are told what the advice says, each counting the way it counts.
//!
//! | engine | flag | counts |
//! | --- | --- | --- |
//! | SGLang | `--speculative-num-draft-tokens` | rows: the root is one of them, so budget + 1 |
//! | SGLang | `--speculative-num-steps` | passes of an autoregressive drafter; DFLASH has one |
//! | SGLang | `--speculative-eagle-topk` | candidates per level; 1 = chain, and DFLASH takes nothing else |
//! | vLLM | `num_speculative_tokens` | drafts: without the root, so the budget of a chain |
//!
//! Flags are those of SGLang's server arguments and vLLM's speculative configuration as their documentation has them
//! (SGLang 0.5.14, vLLM 0.24 and later). What neither engine can run today is said plainly.

use crate::results::Choice;
use serde::{Deserialize, Serialize};
use treeline_sim::profile::DrafterKind;

/// Whether an engine can run a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Support {
    /// It runs just this.
    Exact,
    /// It runs something near.
    Near,
    /// It does not.
    None,
}

/// How one engine is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineSetting {
    /// sglang or vllm.
    pub engine: String,
    /// Whether it can.
    pub support: Support,
    /// The flags; empty for plain decoding, and where there are none.
    pub flags: String,
    /// What the flags do not say; `null` = nothing.
    pub note: Option<String>,
}

/// What stands for the drafter's checkpoint in flags.
pub const DRAFTER: &str = "DRAFTER";

/// Candidates per level that stand for a best-first tree: its branches are narrow, and SGLang's own default is 4.
const TOPK: u32 = 4;

/// The settings of both engines for a choice, SGLang first. `width` is the policy's own width per level, where it has one.
#[must_use]
pub fn settings(choice: &Choice, drafter: DrafterKind, width: Option<u32>) -> [EngineSetting; 2] {
    [sglang(choice, drafter, width), vllm(choice, drafter)]
}

fn setting(engine: &str, support: Support, flags: String, note: Option<String>) -> EngineSetting {
    EngineSetting { engine: engine.to_owned(), support, flags, note }
}

/// Whether a choice is a chain: trees of one node are.
fn is_chain(choice: &Choice) -> bool {
    choice.policy == "chain" || matches!(choice.policy.as_str(), "best-first" | "spine-first") && choice.budget == 1
}

/// Whether the size of its trees depends on the step.
fn sizes_itself(choice: &Choice) -> bool {
    matches!(choice.policy.as_str(), "cost-aware" | "batch-wide" | "adaptive")
}

fn plain(choice: &Choice) -> bool {
    choice.budget == 0 || choice.policy == "plain"
}

fn sglang(choice: &Choice, drafter: DrafterKind, width: Option<u32>) -> EngineSetting {
    const NAME: &str = "sglang";
    if plain(choice) {
        return setting(NAME, Support::Exact, String::new(), Some("leave all --speculative-* flags out".to_owned()));
    }
    let rows = choice.budget + 1;
    match drafter {
        DrafterKind::Dflash { block } if is_chain(choice) => {
            let rows = rows.min(block);
            let flags = format!(
                "--speculative-algorithm DFLASH --speculative-draft-model-path {DRAFTER} --speculative-num-draft-tokens {rows}"
            );
            let note = (rows < block).then(|| format!("drafts {rows} positions in place of the block's {block} too"));
            setting(NAME, Support::Exact, flags, note)
        }
        DrafterKind::Dflash { .. } => {
            let note = "no trees: DFLASH verifies one chain (--speculative-eagle-topk is set to 1)".to_owned();
            setting(NAME, Support::None, String::new(), Some(note))
        }
        DrafterKind::Eagle { steps } => {
            let flags = |steps: u32, topk: u32| {
                format!(
                    "--speculative-algorithm EAGLE3 --speculative-draft-model-path {DRAFTER} \
                     --speculative-num-steps {steps} --speculative-eagle-topk {topk} --speculative-num-draft-tokens {rows}"
                )
            };
            if is_chain(choice) {
                return setting(NAME, Support::Exact, flags(choice.budget, 1), None);
            }
            let steps = steps.min(choice.budget);
            match (choice.policy.as_str(), width) {
                ("top-k", Some(k)) => setting(NAME, Support::Exact, flags(steps, k), None),
                _ if sizes_itself(choice) => {
                    let note = "one size for all steps: it does not size trees by their cost".to_owned();
                    setting(NAME, Support::Near, flags(steps, TOPK), Some(note))
                }
                _ => {
                    let note = "keeps the best of a tree with that many branches a level".to_owned();
                    setting(NAME, Support::Near, flags(steps, TOPK), Some(note))
                }
            }
        }
    }
}

fn vllm(choice: &Choice, drafter: DrafterKind) -> EngineSetting {
    const NAME: &str = "vllm";
    if plain(choice) {
        return setting(NAME, Support::Exact, String::new(), Some("leave --speculative-config out".to_owned()));
    }
    if is_chain(choice) {
        let (method, most) = method(drafter);
        let flags = config(method, choice.budget.min(most), None);
        return setting(NAME, Support::Exact, flags, None);
    }
    let note = match drafter {
        DrafterKind::Dflash { .. } => "no trees: method dflash drafts one chain",
        DrafterKind::Eagle { .. } => "no best-first trees: EAGLE takes a fixed `speculative_token_tree` at the most",
    };
    setting(NAME, Support::None, String::new(), Some(note.to_owned()))
}

/// vLLM's method and the most drafts of a chain.
fn method(drafter: DrafterKind) -> (&'static str, u32) {
    match drafter {
        DrafterKind::Dflash { block } => ("dflash", block - 1),
        DrafterKind::Eagle { steps } => ("eagle3", steps),
    }
}

fn config(method: &str, drafts: u32, schedule: Option<&[[u32; 3]]>) -> String {
    let mut json = serde_json::json!({ "method": method, "model": DRAFTER, "num_speculative_tokens": drafts });
    if let Some(schedule) = schedule {
        json["num_speculative_tokens_per_batch_size"] = serde_json::json!(schedule);
    }
    format!("--speculative-config '{json}'")
}

/// vLLM's schedule of chain lengths by batch size from (concurrency, chain nodes), ascending. Between two concurrencies that
/// were compared the length changes at their geometric mean; nothing is said beyond the last. `None` where one length serves
/// all, or nothing drafts.
#[must_use]
pub fn vllm_schedule(lengths: &[(u32, u32)], drafter: DrafterKind) -> Option<String> {
    let (method, cap) = method(drafter);
    let longest = lengths.iter().map(|l| l.1.min(cap)).max().filter(|&n| n > 0)?;
    let mut ranges: Vec<[u32; 3]> = Vec::new();
    for (i, &(concurrency, drafts)) in lengths.iter().enumerate() {
        let middle = |next: &(u32, u32)| (f64::from(concurrency) * f64::from(next.0)).sqrt() as u32;
        let to = lengths.get(i + 1).map_or(concurrency, middle);
        let from = ranges.last().map_or(1, |last| last[1] + 1);
        match ranges.last_mut() {
            Some(last) if last[2] == drafts.min(cap) => last[1] = to,
            _ => ranges.push([from, to, drafts.min(cap)]),
        }
    }
    (ranges.len() > 1).then(|| config(method, longest, Some(&ranges)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DFLASH: DrafterKind = DrafterKind::Dflash { block: 8 };
    const EAGLE: DrafterKind = DrafterKind::Eagle { steps: 5 };

    fn choice(policy: &str, budget: u32) -> Choice {
        Choice { policy: policy.to_owned(), budget }
    }

    /// The root counts in SGLang's rows and not in vLLM's drafts.
    #[test]
    fn each_engine_counts_its_own_way() {
        let [sglang, vllm] = settings(&choice("chain", 7), DFLASH, None);
        assert!(sglang.flags.contains("DFLASH") && sglang.flags.ends_with("--speculative-num-draft-tokens 8"));
        assert!(vllm.flags.contains(r#""method":"dflash""#) && vllm.flags.contains(r#""num_speculative_tokens":7"#));
        assert_eq!((sglang.support, vllm.support, sglang.note), (Support::Exact, Support::Exact, None));
        // A chain can be no longer than the block.
        let [sglang, vllm] = settings(&choice("chain", 15), DFLASH, None);
        assert!(sglang.flags.ends_with("tokens 8") && vllm.flags.contains(r#"tokens":7"#));
        let [sglang, _] = settings(&choice("chain", 3), DFLASH, None);
        assert!(sglang.note.is_some_and(|n| n.contains("drafts 4 positions")));
        let [sglang, vllm] = settings(&choice("chain", 3), EAGLE, None);
        assert!(sglang.flags.contains("--speculative-num-steps 3 --speculative-eagle-topk 1"), "{}", sglang.flags);
        assert!(sglang.flags.ends_with("--speculative-num-draft-tokens 4") && vllm.flags.contains("eagle3"));
    }

    #[test]
    fn what_no_engine_runs_is_said() {
        for policy in ["best-first", "batch-wide", "sequoia"] {
            let both = settings(&choice(policy, 16), DFLASH, None);
            assert!(both.iter().all(|s| s.support == Support::None && s.flags.is_empty() && s.note.is_some()));
        }
        let [sglang, vllm] = settings(&choice("top-k", 59), EAGLE, Some(8));
        assert_eq!((sglang.support, vllm.support), (Support::Exact, Support::None));
        assert!(sglang.flags.contains("--speculative-eagle-topk 8 --speculative-num-draft-tokens 60"));
        assert_eq!(settings(&choice("best-first", 16), EAGLE, None)[0].support, Support::Near);
        assert_eq!(settings(&choice("best-first", 1), DFLASH, None)[0].support, Support::Exact, "one node is a chain");
    }

    #[test]
    fn plain_decoding_has_no_flags() {
        for s in settings(&choice("plain", 0), DFLASH, None) {
            assert!(s.flags.is_empty() && s.support == Support::Exact && s.note.is_some());
        }
    }

    #[test]
    fn lengths_by_batch_size_become_ranges() {
        let flags = vllm_schedule(&[(1, 7), (4, 7), (16, 4), (64, 0)], DFLASH).unwrap();
        assert!(flags.contains("[[1,8,7],[9,32,4],[33,64,0]]"), "{flags}");
        // Neighbours too near for a batch size between them.
        let flags = vllm_schedule(&[(1, 7), (2, 5), (3, 4)], DFLASH).unwrap();
        assert!(flags.contains("[[1,1,7],[2,2,5],[3,3,4]]"), "{flags}");
        assert!(flags.contains(r#""num_speculative_tokens":7"#));
        assert_eq!(vllm_schedule(&[(1, 7), (64, 7)], DFLASH), None);
        assert_eq!(vllm_schedule(&[(1, 0)], DFLASH), None);
        assert_eq!(vllm_schedule(&[], DFLASH), None);
    }
}
