//! What tests of this crate share: the devices to run on, seeded numbers, and errors against a reference.

use crate::device::Gpu;

/// Devices that a test runs on: the emulator where there is a C++ compiler, and GPU 0 where there is one. What is not there is
/// printed as `skipped: …`; with `REQUIRE_GPU=1` a missing GPU fails the test instead.
///
/// # Panics
/// When neither is there, or the GPU is required and missing.
#[must_use]
pub fn gpus() -> Vec<Gpu> {
    let mut found = Vec::new();
    if std::env::var_os("REQUIRE_GPU").is_none_or(|v| v.is_empty() || v == "0") {
        found.extend(emulator());
    }
    found.extend(real());
    found
}

/// The emulator, or `None` after printing why it is skipped.
#[must_use]
pub fn emulator() -> Option<Gpu> {
    Gpu::emulated().inspect_err(|e| skip(&e.to_string())).ok()
}

/// GPU 0, or `None` after printing why it is skipped.
///
/// # Panics
/// With `REQUIRE_GPU=1`, when there is none.
#[must_use]
pub fn real() -> Option<Gpu> {
    match Gpu::open(0) {
        Ok(gpu) => Some(gpu),
        Err(e) if std::env::var_os("REQUIRE_GPU").is_some_and(|v| v == "1") => panic!("REQUIRE_GPU=1, but: {e}"),
        Err(e) => {
            skip(&format!("no GPU: {e}"));
            None
        }
    }
}

#[allow(clippy::print_stderr, reason = "a skipped test says so on the test's output")]
fn skip(why: &str) {
    eprintln!("skipped: {why}");
}

/// A small generator of test numbers (SplitMix64).
#[derive(Debug, Clone)]
pub struct Numbers(pub u64);

impl Numbers {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in [0, `below`).
    pub fn below(&mut self, below: u64) -> u64 {
        self.bits() % below.max(1)
    }

    /// Uniform in [−1, 1).
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// `n` numbers, uniform in [−`scale`, `scale`).
    pub fn floats(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.unit() * scale).collect()
    }
}

/// ‖got − want‖ / ‖want‖ in f64; NaN and a difference in length give infinity.
#[must_use]
pub fn relative_error(got: &[f32], want: &[f32]) -> f64 {
    if got.len() != want.len() || got.iter().any(|x| x.is_nan()) {
        return f64::INFINITY;
    }
    let square = |x: f64| x * x;
    let error: f64 = got.iter().zip(want).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let size: f64 = want.iter().map(|b| square(f64::from(*b))).sum();
    if size == 0.0 { error.sqrt() } else { (error / size).sqrt() }
}

/// Rounded to bfloat16 (nearest even), as bits.
#[must_use]
pub fn to_bf16(x: &[f32]) -> Vec<u16> {
    x.iter().map(|&x| half::bf16::from_f32(x).to_bits()).collect()
}

/// bfloat16 bits as f32.
#[must_use]
pub fn from_bf16(x: &[u16]) -> Vec<f32> {
    x.iter().map(|&x| half::bf16::from_bits(x).to_f32()).collect()
}
