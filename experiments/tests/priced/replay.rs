//! Cells that go round by round.

use crate::site::{GRID, Site};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;
use treeline::results::{Answer, Cell};
use treeline::run::{self, Options, Outcome};
use treeline_core::{Ask, DraftView, Forest, Grow, Limits, Needs, NodeRef, Round, TreePolicy};
use treeline_policies::{BuildError, PolicyConfig, Registry};
use treeline_sim::{memory, profile};

/// A smaller run: one acceptance and context, its process moved.
pub fn small() -> String {
    let second = GRID.find("[[acceptance]]\nname = \"maths").unwrap();
    let policies = GRID.find("[[policy]]").unwrap();
    let text = format!("{}{}", &GRID[..second], &GRID[policies..]);
    text.replace("variants = false\n", "").replace("[1024, 8192]", "[1024]").replace("requests = 12", "requests = 24")
}

/// Policies that tables cannot answer are replayed round by round: the same cells, files and answers.
#[test]
fn other_policies_are_replayed_over_the_same_prices() {
    let site = Site::new();
    let text = GRID.replace("kind = \"chain\"\nbudget = [7]", "kind = \"top-k\"\nwidth = 4\nbudget = [16]");
    let outcome = site.go(&text, "run", false);
    assert_eq!((outcome.summary.cells.len(), outcome.failed.len()), (40, 0));
    let c = outcome.summary.cells.iter().find(|c| c.policy == "top-k" && c.concurrency == 16).unwrap();
    assert_eq!((c.tier.as_str(), c.in_domain.is_some()), ("table", true));
    assert!(c.speedup.unwrap() > 0.5 && c.power_w.unwrap() > 100.0 && c.joules_per_token.unwrap() > 0.0);
    assert_eq!(outcome.priced.unwrap().answers.len(), 8);
    // At one request the replay has no ramp: both ways come to the same prices and lengths.
    let grid = site.go(GRID, "grid", false);
    let at = |o: &Outcome| {
        let here = |c: &&Cell| c.policy == "best-first" && c.budget == 8 && c.concurrency == 1;
        let c = o.summary.cells.iter().find(here).unwrap().clone();
        (c.tau.unwrap(), c.step_ms.unwrap())
    };
    let again = site.go(&text, "again", false);
    let ((tau, ms), (grid_tau, grid_ms)) = (at(&again), at(&grid));
    assert!((tau / grid_tau - 1.0).abs() < 0.03, "τ {tau} against {grid_tau}");
    assert!((ms / grid_ms - 1.0).abs() < 0.01, "{ms} ms against {grid_ms}");
}

#[test]
fn open_loops_tell_how_long_requests_wait() {
    let site = Site::new();
    let text = GRID.replace("rounds = 512", "rounds = 512\narrivals = { rate = 3 }").replace("[1024, 8192]", "[1024]");
    let outcome = site.go(&text, "run", false);
    let waits = |c: &Cell| c.notes.iter().any(|n| n.starts_with("first token after"));
    assert!(outcome.summary.cells.iter().all(waits));
}

/// A policy without tables in the file does not narrow any interval: what would change is replayed for those that decide.
#[test]
fn one_more_policy_narrows_no_interval() {
    let site = Site::new();
    let grid = site.go(&small(), "grid", false).priced.unwrap();
    let talon = format!("{}[[policy]]\nkind = \"talon\"\nwidth = 4\nbudget = [16]\n", small());
    let outcome = site.go(&talon, "talon", false);
    assert_eq!(outcome.failed, []);
    let replayed = outcome.priced.unwrap();
    assert_eq!((grid.answers.len(), replayed.answers.len()), (2, 2));
    for (g, r) in grid.answers.iter().zip(&replayed.answers) {
        assert_eq!((&r.left_out, &g.left_out), (&Vec::new(), &Vec::new()));
        let (on_tables, by_rounds) = (g.parts.model.unwrap(), r.parts.model.unwrap());
        assert!(by_rounds > 0.0, "{:?}", r.parts);
        // Two ways to the same parameters; the choices may differ.
        assert!(by_rounds > 0.3 * on_tables, "{by_rounds} by rounds, {on_tables} on tables");
        assert!(by_rounds < 4.0 * on_tables.max(0.005), "{by_rounds} by rounds, {on_tables} on tables");
    }
}

/// Where nothing was moved, the interval says so and is a lower bound.
#[test]
fn a_replay_whose_process_is_not_moved_says_so() {
    let site = Site::new();
    let text = small().replace("[[policy]]\nkind = \"chain\"", "variants = false\n[[policy]]\nkind = \"chain\"");
    let text = text.replace("rounds = 512", "rounds = 512\narrivals = { rate = 50 }");
    let priced = site.go(&text, "run", false).priced.unwrap();
    for a in &priced.answers {
        assert_eq!(a.parts.model, None);
        assert!(a.at_least() && a.left_out[0].contains("`variants = false`"), "{:?}", a.left_out);
    }
}

/// Engines that mostly wait: throughput follows the arrivals whatever the policy, the gain is that of the work.
#[test]
fn idle_time_is_part_of_an_open_loops_throughput() {
    let site = Site::new();
    let text = small().replace("rounds = 512", "rounds = 512\narrivals = { rate = 0.2 }");
    let outcome = site.go(&text, "run", false);
    let cells: Vec<&Cell> = outcome.summary.cells.iter().filter(|c| c.concurrency == 16).collect();
    let of = |policy: &str, budget| *cells.iter().find(|c| c.policy == policy && c.budget == budget).unwrap();
    let (plain, tree) = (of("plain", 0), of("best-first", 8));
    for c in &cells {
        let busy = c.busy.unwrap();
        assert!(busy > 0.0 && busy < 0.6, "{} {}: busy {busy}", c.policy, c.budget);
        // 95 decoded tokens a request at 0.2 requests a second, as far as 24 gaps come to the mean.
        assert!((10.0..40.0).contains(&c.tok_s.unwrap()), "{:?}", c.tok_s);
        assert!((c.tok_s_gpu.unwrap() * 8.0 / c.tok_s.unwrap() - 1.0).abs() < 1e-9);
        assert!(c.power_w.unwrap() < 700.0);
    }
    assert!((tree.tok_s.unwrap() / plain.tok_s.unwrap() - 1.0).abs() < 0.1, "the arrivals set it");
    assert!(tree.busy.unwrap() < 0.8 * plain.busy.unwrap(), "{:?} {:?}", tree.busy, plain.busy);
    let answers = outcome.priced.unwrap().answers;
    assert!(answers.iter().all(|a| a.speedup > 1.2), "the gain is of the time that engines work");
    // In a closed loop there is nothing to wait for.
    let closed = site.go(&GRID.replace("record = \"summary\"", "record = \"sample:500\""), "closed", false);
    assert!(closed.summary.cells.iter().all(|c| c.busy.is_none()));
}

/// Decodes plainly, and breaks where more than one request decodes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Brittle {}

impl PolicyConfig for Brittle {
    const KIND: &'static str = "brittle";
    const ABOUT: &'static str = "for one request at a time";

    fn example() -> Self {
        Self {}
    }

    fn build(self, _limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
        Ok(Box::new(self))
    }
}

impl TreePolicy for Brittle {
    fn kind(&self) -> &str {
        Self::KIND
    }

    fn needs(&self, _limits: &Limits) -> Needs {
        Needs { draws: true, waves: true, ..Needs::default() }
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        assert!(round.batch.seqs.len() < 2, "too many requests");
        ask.extend(round.batch.seqs.iter().map(|_| Ask { draw: round.draw, ..Ask::default() }));
    }

    fn grow(&mut self, _: &Round<'_>, _: &dyn DraftView, _: &mut Forest, _: &mut Vec<NodeRef>) -> Grow {
        Grow::Done
    }
}

/// A cell that fails is named with its setting and reason; its neighbours have their figures and answers.
#[test]
fn a_failing_replay_does_not_lose_its_neighbours() {
    let site = Site::new();
    let mut registry = Registry::builtin();
    registry.register::<Brittle>().unwrap();
    let text = format!("{GRID}[[policy]]\nkind = \"brittle\"\nbudget = [4]\n");
    std::fs::write(site.path("b.toml"), text).unwrap();
    let experiment = treeline::config::load(&site.path("b.toml"), &registry).unwrap();
    let options = Options { out: Some(site.path("run")), quiet: true, ..Options::default() };
    let outcome: Outcome = run::run(&experiment, &registry, &options).unwrap();
    // 8 settings of 6 cells; the new policy fails at 16 at once.
    assert_eq!((outcome.summary.cells.len(), outcome.failed.len()), (48 - 4, 4));
    let priced = outcome.priced.unwrap();
    assert_eq!((priced.answers.len(), priced.failed.len()), (8, 4));
    for f in &priced.failed {
        assert_eq!(f.concurrency, 16);
        assert_eq!(f.choice.as_ref().map(|c| (c.policy.as_str(), c.budget)), Some(("brittle", 4)));
        assert!(f.reason.contains("too many requests"), "{}", f.reason);
        let here = |a: &&Answer| (&a.acceptance, a.context, a.concurrency) == (&f.acceptance, f.context, f.concurrency);
        assert_eq!(priced.answers.iter().find(here).unwrap().candidates.len(), 5);
    }
    let named: std::collections::BTreeSet<_> = priced.failed.iter().map(|f| (&f.acceptance, f.context)).collect();
    assert_eq!(named.len(), 4, "each setting by its own name");
}

/// Room for the cache is asked for by each cell's own trees: the file's largest budget takes nothing from the small ones.
#[test]
fn small_trees_keep_no_room_for_the_files_largest() {
    let here = Path::new(".");
    let deployment = profile::deployment("sglang-0.5.14-b300-tp8", here).unwrap();
    let (hardware, model) = (profile::hardware("b300-sxm6", here).unwrap(), profile::model("kimi-k2.6", here).unwrap());
    let drafter = profile::drafter("kimi-k2.6-dflash", here).unwrap();
    let room = memory::room(&model, Some(&drafter), &deployment, &hardware).unwrap();
    let (few, many) = (room.largest_cap(16_384 + 96, 9), room.largest_cap(16_384 + 96, 257));
    assert!(few > many, "{few} {many}");
    let site = Site::new();
    let text = small().replace("[1024]", "[16384]").replace("[1, 16]", &format!("[{few}]"));
    let text = text.replace("requests = 24", "requests = 160").replace("budget = [8, 32]", "budget = [8, 256]");
    let outcome = site.go(&text.replace("rounds = 512", "rounds = 512\narrivals = { rate = 1000 }"), "run", false);
    assert_eq!(outcome.failed, []);
    let refused = outcome.priced.unwrap().refused;
    assert!(outcome.summary.cells.iter().any(|c| c.policy == "best-first" && c.budget == 8));
    assert!(refused.iter().all(|r| r.choice.budget == 256) && !refused.is_empty(), "{refused:?}");
}

/// Prompts that are charged take time and energy; between a user's tokens only those of others stand.
#[test]
fn charged_prompts_cost_energy_and_keep_others_waiting() {
    let site = Site::new();
    let replayed = |name: &str, prefill: &str| {
        let text = small().replace("prefill = \"excluded\"", &format!("prefill = \"{prefill}\""));
        site.go(&text.replace("record = \"summary\"", "record = \"all\""), name, false)
    };
    let (free, charged) = (replayed("free", "excluded"), replayed("charged", "charged"));
    let cell = |o: &Outcome, concurrency: u32| {
        let here = |c: &&Cell| c.policy == "chain" && c.concurrency == concurrency;
        o.summary.cells.iter().find(here).unwrap().clone()
    };
    let (alone, paid) = (cell(&free, 1), cell(&charged, 1));
    let share = |a: Option<f64>, b: Option<f64>| a.unwrap() / b.unwrap();
    // 1024 prompt tokens before 96 of a response.
    assert!(share(paid.joules_per_token, alone.joules_per_token) > 1.2, "{paid:?}");
    assert!(share(paid.tok_s, alone.tok_s) < 0.95);
    assert!((share(paid.tok_s_user, alone.tok_s_user) - 1.0).abs() < 0.02, "nobody else's prompt comes between");
    let (beside, waits) = (cell(&free, 16), cell(&charged, 16));
    assert!(share(waits.tok_s_user, beside.tok_s_user) < 0.95);
}
