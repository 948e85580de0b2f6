//! Whether to draft at all: a decision before the draft, so by long-run rates.

use super::Throughput;

/// Rounds that must have drafted before drafting may stop: outcomes of single rounds scatter widely.
const LEAST: u64 = 32;

/// Drafting on or off, with hysteresis and probes: a state that cannot last for ever.
///
/// What is averaged is the gain over a plain step of the same requests, so that a batch that shrinks or grows does not
/// look like a change.
#[derive(Debug, Clone, PartialEq)]
pub struct Switch {
    /// Tokens over the tokens that plain steps would have given in the same time.
    gain: Throughput,
    margin: f64,
    period: u64,
    off: bool,
    seen: u64,
    since_probe: u64,
    probe_again: bool,
}

impl Switch {
    /// Drafting is on. `memory` in rounds that draft; `margin` = relative gain that moves the switch; `probe` = share of
    /// rounds that draft while it is off.
    #[must_use]
    pub fn new(memory: f64, margin: f64, probe: f64) -> Self {
        let period = (1.0 / probe).floor().max(1.0) as u64;
        Self { gain: Throughput::new(memory), margin, period, off: false, seen: 0, since_probe: 0, probe_again: false }
    }

    /// Whether the next round drafts.
    pub fn drafts(&mut self) -> bool {
        if !self.off {
            return true;
        }
        self.since_probe += 1;
        let probe = self.probe_again || self.since_probe >= self.period;
        if probe {
            self.since_probe = 0;
        }
        probe
    }

    /// Takes in a round that drafted: its tokens and ms, and the tokens and ms of a plain step instead.
    pub fn learn(&mut self, tokens: f64, ms: f64, plain_tokens: f64, plain_ms: f64) {
        // The last rounds' number of requests weighs alike in both.
        let plain = plain_tokens / plain_ms * ms;
        if !(plain > 0.0 && plain.is_finite()) {
            return;
        }
        self.gain.push(tokens, plain);
        self.seen += 1;
        self.probe_again = self.off && tokens > plain;
        let gain = self.gain.get().unwrap_or(1.0);
        if self.off {
            self.off = gain <= 1.0 + self.margin;
        } else {
            self.off = self.seen >= LEAST && gain < 1.0 - self.margin;
        }
    }
}
