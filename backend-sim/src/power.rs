//! Power and energy of a step: idle power, and energy for each byte moved and each operation.
//!
//! P = min(limit, idle + (bytes · e_byte + flops · e_flop) / t). The energies are per board, with everything that a byte or an
//! operation drags along. It has two known gaps: clocks that fall at the limit lengthen the step, which is not fed back, and
//! links between GPUs are not counted apart.

use crate::profile::Hardware;

/// What every result that uses this model has to say.
pub const NOTE: &str = "power and energy are a model (idle + per byte + per flop), not validated until measured";

/// Power model of one GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Power {
    /// Watts while nothing runs.
    pub idle_w: f64,
    /// Board limit, watts.
    pub limit_w: f64,
    /// Joules a byte of device memory.
    pub joules_per_byte: f64,
    /// Joules a BF16 operation.
    pub joules_per_flop: f64,
}

/// Power of one GPU over a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerEstimate {
    /// Mean power, watts.
    pub watts: f64,
    /// Energy, joules.
    pub joules: f64,
    /// Whether the board's limit cut it: the step would then be longer than was priced.
    pub limited: bool,
}

impl Power {
    /// The model of a hardware profile.
    #[must_use]
    pub fn of(hardware: &Hardware) -> Self {
        Self {
            idle_w: hardware.idle_w,
            limit_w: hardware.board_w,
            joules_per_byte: hardware.joules_per_byte,
            joules_per_flop: hardware.joules_per_flop,
        }
    }

    /// A step of `ms` milliseconds that moves `hbm_bytes` and computes `flops` on this GPU.
    #[must_use]
    pub fn step(&self, ms: f64, hbm_bytes: f64, flops: f64) -> PowerEstimate {
        let seconds = ms / 1e3;
        if seconds <= 0.0 {
            return PowerEstimate { watts: self.idle_w, joules: 0.0, limited: false };
        }
        let free = self.idle_w + (hbm_bytes * self.joules_per_byte + flops * self.joules_per_flop) / seconds;
        let watts = free.min(self.limit_w);
        PowerEstimate { watts, joules: watts * seconds, limited: free > self.limit_w }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POWER: Power = Power { idle_w: 100.0, limit_w: 700.0, joules_per_byte: 1e-10, joules_per_flop: 1e-12 };

    #[test]
    fn power_lies_between_idle_and_the_limit() {
        assert_eq!(POWER.step(1.0, 0.0, 0.0), PowerEstimate { watts: 100.0, joules: 0.1, limited: false });
        // 1 GB and 0.1 Tflop in a millisecond: 100 + 100 + 100 W.
        let step = POWER.step(1.0, 1e9, 1e11);
        assert!((step.watts - 300.0).abs() < 1e-9 && (step.joules - 0.3).abs() < 1e-12 && !step.limited);
        let full = POWER.step(1.0, 1e10, 1e12);
        assert!(full.watts == 700.0 && full.limited);
        assert_eq!(POWER.step(0.0, 1.0, 1.0).joules, 0.0);
    }
}
