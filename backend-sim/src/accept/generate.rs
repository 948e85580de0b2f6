//! The process as a rank trace of a block drafter.

use super::chain::{Belief, Penalties, State};
use super::process::{Process, ProcessError};
use super::ranks::RankLaws;
use super::shape::{Shape, logistic};
use std::ops::Range;
use treeline_core::End;
use treeline_core::stream::{philox4x32, unit};
use treeline_core::trace::{Position, Trace, TraceMeta, TraceRequest};

/// Position that keys a request's own numbers: no response is that long.
const WHOLE: u32 = u32::MAX;

/// Positions of context behind a generated response, so that no tree is cut by it.
const ROOM: u32 = 65_536;

/// Random numbers of one (seed, request, position): a counter-based stream, so no order of work changes them.
struct Draws {
    key: [u32; 2],
    request: [u32; 2],
    position: u32,
    block: u32,
    left: usize,
    bits: [u32; 4],
}

impl Draws {
    fn new(seed: u64, request: u64, position: u32) -> Self {
        // The constant keeps these apart from the engines' streams of the same seed.
        let key = [seed as u32 ^ 0x5452_4545, (seed >> 32) as u32 ^ 0x4c49_4e45];
        Self { key, request: [request as u32, (request >> 32) as u32], position, block: 0, left: 0, bits: [0; 4] }
    }

    fn uniform(&mut self) -> f64 {
        if self.left == 0 {
            self.bits = philox4x32([self.block, self.position, self.request[0], self.request[1]], self.key);
            self.block += 1;
            self.left = 4;
        }
        self.left -= 1;
        unit(self.bits[self.left])
    }

    /// Two standard normal numbers (Box and Muller).
    fn normals(&mut self) -> [f64; 2] {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * self.uniform()).sin_cos();
        [radius * cos, radius * sin]
    }
}

impl Process {
    /// A request's easiness: a standard normal number that moves the logits of all its positions by `request_spread`.
    #[must_use]
    pub fn easiness(&self, seed: u64, request: u64) -> f64 {
        Draws::new(seed, request, WHOLE).normals()[0]
    }

    /// A request's novelty factor: what the effective rows of its trees are multiplied with when experts are counted.
    /// Log-normal of mean 1; `overlap_correlation` ties it to [`Process::easiness`]: above 0, easy text shares more
    /// experts between its rows, so its factor is smaller.
    #[must_use]
    pub fn novelty(&self, seed: u64, request: u64) -> f64 {
        let [easy, own] = Draws::new(seed, request, WHOLE).normals();
        let (rho, spread) = (self.overlap_correlation.value, self.overlap_spread.value);
        (spread * ((1.0 - rho * rho).sqrt() * own - rho * easy) - 0.5 * spread * spread).exp()
    }

    /// A rank trace: `requests` responses of `tokens` emitted tokens each, ids 0, 1, …
    ///
    /// The same seed gives the same trace; a request's rows depend on nothing but the seed, its id and the process. Rows
    /// near the end of a response are as few as a tree there could use.
    ///
    /// # Errors
    /// [`ProcessError::Value`] when a parameter contradicts its meaning, or `tokens` is 0.
    pub fn generate(&self, requests: u32, tokens: u32, seed: u64) -> Result<Trace, ProcessError> {
        self.generate_part(0..requests, tokens, seed)
    }

    /// The requests of some ids alone, as [`Process::generate`] gives them among others: a trace too large for memory is
    /// had part by part.
    ///
    /// # Errors
    /// As [`Process::generate`].
    pub fn generate_part(&self, ids: Range<u32>, tokens: u32, seed: u64) -> Result<Trace, ProcessError> {
        self.check_values()?;
        if tokens == 0 {
            return Err(self.value("tokens", "a response has at least one token"));
        }
        let writer = Writer {
            process: self,
            shape: Shape::of(self)?,
            laws: RankLaws::of(self),
            penalties: Penalties::of(self),
            seed,
        };
        let prompt_tokens = 1;
        let request = |id: u32| TraceRequest {
            id: u64::from(id),
            domain: self.name.clone(),
            prompt_tokens,
            max_new: tokens,
            tokens: Vec::new(),
            emitted: tokens,
            positions: writer.positions(u64::from(id), tokens),
            end: End::Length,
        };
        let meta = TraceMeta {
            depth: self.depth(),
            width: self.width,
            conditional: false,
            ids: false,
            vocab: self.vocab,
            context: prompt_tokens.saturating_add(tokens).saturating_add(ROOM),
            temperature: 0.0,
            seed,
            source: format!("synthetic: process {}", self.name),
        };
        Ok(Trace { meta, requests: ids.map(request).collect() })
    }
}

struct Writer<'a> {
    process: &'a Process,
    shape: Shape,
    laws: RankLaws,
    penalties: Penalties,
    seed: u64,
}

impl Writer<'_> {
    fn positions(&self, request: u64, tokens: u32) -> Vec<Position> {
        let easy = self.process.request_spread.value * self.process.easiness(self.seed, request);
        let depth = self.process.depth();
        // Behind root i at most tokens − 1 − i tokens come, the last of them the bonus.
        (0..tokens - 1).map(|i| self.position(request, i, easy, depth.min(tokens - 2 - i))).collect()
    }

    fn position(&self, request: u64, index: u32, easy: f64, depth: u32) -> Position {
        let p = self.process;
        let mut draws = Draws::new(self.seed, request, index);
        let [block, _] = draws.normals();
        let base = easy + p.position_spread.value * block;
        let width = p.width as usize;
        let depth = depth as usize;
        let mut at = Position {
            ends: Vec::with_capacity(depth),
            logp: Vec::with_capacity(depth * width),
            truth: Vec::with_capacity(depth),
            ..Position::default()
        };
        let (mut belief, mut state) = (Belief::new(), State::Spine);
        for d in 0..depth {
            let [confidence, steepness] = draws.normals();
            let logit = self.shape.mean[d] + base + p.confidence_spread.value * confidence;
            let first = belief.marginal(logit, &self.penalties);
            let flatter = p.rank_slope.value * (first / (1.0 - first)).ln().min(0.0);
            let law = self.laws.pick(p.rank_exponent.value + flatter + p.rank_spread.value * steepness, first);
            self.list(&mut at, law, first);
            let right = draws.uniform() < logistic(logit + self.penalties.of_state(state));
            let rank = if right { Some(0) } else { draw(law, draws.uniform()) };
            at.truth.push(rank);
            state = state.next(rank);
            belief.step(logit, &self.penalties, law.cumulative.last().copied().unwrap_or(0.0));
        }
        at
    }

    /// Appends the row that the drafter reports: the first choice of probability `first`, the rest by the law, tempered.
    fn list(&self, at: &mut Position, law: &super::ranks::RankLaw, first: f64) {
        let t = 1.0 / self.process.temper.value;
        let (best, rest) = (first.ln(), (1.0 - first).max(f64::MIN_POSITIVE).ln());
        let whole = if t == 1.0 { 0.0 } else { ((best * t).exp() + (rest * t).exp() * law.tempered).ln() };
        let head = ((best * t - whole) as f32).min(0.0);
        at.logp.push(head);
        let (offset, scale) = ((rest * t - whole) as f32, t as f32);
        at.logp.extend(law.log.iter().map(|l| (offset + scale * l).min(head)));
        at.ends.push(at.logp.len() as u32);
    }
}

/// The rank, where the row lists it.
fn draw(law: &super::ranks::RankLaw, u: f64) -> Option<u32> {
    let at = law.cumulative.partition_point(|c| *c <= u);
    (at < law.cumulative.len()).then_some(at as u32 + 1)
}
