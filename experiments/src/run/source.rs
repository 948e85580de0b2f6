//! Where a run's rounds come from: engines, requests, and what is known about both.

use serde_json::Value;
use treeline_core::{Engine, EngineInfo, Law, Needs, PhaseTimes, Request, StepCost};

/// A backend as the runner sees it: hands out engines that share their weights.
pub(super) trait Source: Sync {
    /// Its engine.
    type Engine: Engine;

    /// A fresh engine with `slots` sequences at once, each with trees of at most `budget` nodes.
    fn engine(&self, slots: u32, budget: u32) -> anyhow::Result<Self::Engine>;

    /// The requests at one temperature, in workload order.
    fn requests(&self, temperature: f64) -> Vec<Request>;

    /// The law of every cell at one temperature.
    fn law(&self, temperature: f64) -> Law<'_>;

    /// Domain of the request with this index.
    fn domain(&self, index: usize) -> &str;

    /// What is known beforehand.
    fn facts(&self) -> &Facts;

    /// Whether a policy can run at all.
    fn check(&self, _kind: &str, _needs: &Needs) -> anyhow::Result<()> {
        Ok(())
    }

    /// Whether engines share a device that serves one of them at a time, so that cells may not run side by side.
    fn one_at_a_time(&self) -> bool {
        false
    }

    /// What a step costs, for policies that ask, where the source knows.
    fn cost(&self) -> Option<&dyn StepCost> {
        None
    }

    /// What an engine has to say of the cell that it ran.
    fn remarks(&self, _engine: &Self::Engine) -> Vec<String> {
        Vec::new()
    }

    /// All the time of the cell that an engine ran, where requests arrive by a clock of their own.
    fn wall(&self, _engine: &Self::Engine) -> Option<Wall> {
        None
    }

    /// Time between two tokens of one user in ms, where the rounds' own times do not tell.
    fn user_ms(&self, _engine: &Self::Engine) -> Option<f64> {
        None
    }

    /// Joules that the device has drawn since some moment, where it tells.
    fn joules(&self) -> Option<f64> {
        None
    }

    /// Id of the warm-up request; none of a workload has it, unless the source can answer for its own alone.
    fn warm_id(&self) -> u64 {
        u64::MAX
    }

    /// Where the truth ranked behind a root, for sources that know it beforehand.
    fn truth(&self, _request: u64, _start: u32) -> Option<&[Option<u32>]> {
        None
    }
}

/// An open loop's time from its first arrival to its last token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Wall {
    /// Idle time included, in ms.
    pub ms: f64,
    /// What all GPUs draw while nothing runs, in W.
    pub idle_w: f64,
}

/// What holds for all cells of a source.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Facts {
    /// sim, cpu or cuda.
    pub backend: &'static str,
    /// Machine, in words.
    pub hardware: Option<String>,
    /// Name and driver version of the GPU, where there is one.
    pub gpu: Option<(String, String)>,
    /// Target and drafter, in words.
    pub deployment: Option<String>,
    /// `measured`, or the trace.
    pub acceptance: String,
    /// Prompt files, or the trace.
    pub workload: String,
    /// Positions per request.
    pub context: u32,
    /// Tensor-parallel ranks of the deployment.
    pub ranks: u32,
    /// Ranks per row that policies may ask for.
    pub width: u32,
    /// Levels that they may ask for.
    pub depth: u32,
    /// Temperatures, one set of cells each.
    pub temperatures: Vec<f64>,
    /// Whether engines have a clock.
    pub clock: bool,
    /// Whether emitted tokens are the models' own (a rank trace has none).
    pub tokens: bool,
    /// Whether [`Source::truth`] answers.
    pub knows_truth: bool,
    /// `measured` or `replayed`.
    pub tau: &'static str,
    /// `measured`, or `none` where there is no time.
    pub tier: &'static str,
    /// What must agree for two runs to be the same: goes into every cell's key.
    pub identity: Value,
    /// What the manifest says about models, prompts or trace.
    pub manifest: Value,
    /// Remarks of every cell.
    pub notes: Vec<String>,
    /// What a reader must know about the whole run.
    pub warnings: Vec<super::RunWarning>,
}

impl Facts {
    /// Whether times are those of a clock on a machine, with all that disturbs it.
    pub fn measured(&self) -> bool {
        self.clock && self.tier == "measured"
    }
}

/// An engine whose drafter is used up to the experiment's width and depth only.
#[derive(Debug)]
pub(super) struct Capped<E> {
    /// The engine.
    pub inner: E,
    /// Most ranks per row.
    pub width: u32,
    /// Deepest level.
    pub depth: u32,
}

impl<E: Engine> Engine for Capped<E> {
    type V = E::V;
    type D = E::D;

    fn info(&self) -> EngineInfo {
        let info = self.inner.info();
        EngineInfo { width: info.width.min(self.width), depth: info.depth.min(self.depth), ..info }
    }

    fn ready(&mut self, request: &Request) -> bool {
        self.inner.ready(request)
    }

    fn idle(&mut self) {
        self.inner.idle();
    }

    fn admit(
        &mut self,
        slot: u32,
        request: &Request,
        law: &Law<'_>,
    ) -> Result<treeline_core::Admit, treeline_core::Fault> {
        self.inner.admit(slot, request, law)
    }

    fn release(&mut self, slot: u32) {
        self.inner.release(slot);
    }

    fn parts(&mut self) -> (&mut Self::D, &mut Self::V, &mut <Self::V as treeline_core::Verifier>::Features) {
        self.inner.parts()
    }

    fn fused(
        &mut self,
        round: &treeline_core::Round<'_>,
        program: &treeline_core::Program,
        law: &Law<'_>,
        forest: &mut treeline_core::Forest,
        log: &mut treeline_core::RoundLog,
    ) -> Result<Option<<Self::D as treeline_core::Drafter>::Drafts>, treeline_core::Error> {
        self.inner.fused(round, program, law, forest, log)
    }

    fn mark(&mut self, phase: treeline_core::Phase) {
        self.inner.mark(phase);
    }

    fn take_times(&mut self) -> Option<PhaseTimes> {
        self.inner.take_times()
    }
}

/// The decimal number that was written for a single-precision one: 0.7, not 0.699999988.
pub(super) fn decimal(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}
