//! Tensor cores and asynchronous copies on the emulator and on a GPU, and what the emulator says of a missing wait.

use bytemuck::{Pod, Zeroable};
use treeline_cuda::device::{Arch, Buffer, Gpu, KernelArgs, Launch, Ptr};
use treeline_cuda::testing::{Numbers, emulator, from_bf16, gpus, relative_error, to_bf16};

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Args {
    a: Ptr,
    b: Ptr,
    d: Ptr,
    mode: u32,
    rows: u32,
}

impl KernelArgs for Args {}

fn launch(gpu: &Gpu, kernel: &'static str, block: u32, shared: u32, args: Args) {
    let kernel = gpu.kernel("selftest_tensor.cu", kernel, &[]).unwrap();
    gpu.launch(&kernel, Launch { grid: [1, 1, 1], block, shared }, &args).unwrap();
}

#[test]
fn matrices_arrive_in_their_lanes() {
    let mut numbers = Numbers(1);
    let tiles: Vec<u16> = (0..256).map(|_| numbers.bits() as u16).collect();
    for gpu in gpus() {
        let (a, d) = (gpu.upload("a", &tiles).unwrap(), gpu.alloc::<u32>("d", 32 * 12).unwrap());
        launch(&gpu, "selftest_ldmatrix", 32, 512, Args { a: a.ptr(), b: Ptr::NULL, d: d.ptr(), mode: 0, rows: 0 });
        let got = gpu.read_all(&d).unwrap();
        for lane in 0..32 {
            let (g, t) = (lane / 4, lane % 4 * 2);
            let pair = |m: usize, first: (usize, usize), second: (usize, usize)| {
                let at = |(row, column)| u32::from(tiles[m * 64 + row * 8 + column]);
                at(first) | at(second) << 16
            };
            let plain = |m| pair(m, (g, t), (g, t + 1));
            let turned = |m| pair(m, (t, g), (t + 1, g));
            let want: Vec<u32> = (0..4)
                .map(plain)
                .chain((0..4).map(turned))
                .chain([0, 1].map(plain))
                .chain([2, 3].map(turned))
                .collect();
            assert_eq!(got[lane * 12..][..12], want, "{}, lane {lane}", gpu.info().name);
        }
    }
}

/// Product of 16 × 64 and (8 × 64)ᵀ whose inputs arrive by asynchronous copies, and the product in f64.
fn product(gpu: &Gpu, seed: u64, rows: usize, mode: u32) -> (Vec<f32>, Vec<f32>) {
    let mut numbers = Numbers(seed);
    let (a, b) = (to_bf16(&numbers.floats(16 * 64, 1.0)), to_bf16(&numbers.floats(8 * 64, 1.0)));
    let (at, bt) = (gpu.upload("a", &a).unwrap(), gpu.upload("b", &b).unwrap());
    let d: Buffer<f32> = gpu.alloc("d", 16 * 8).unwrap();
    let args = Args { a: at.ptr(), b: bt.ptr(), d: d.ptr(), mode, rows: rows as u32 };
    launch(gpu, "selftest_mma", 32, 2 * 24 * 48, args);
    let (a, b) = (from_bf16(&a), from_bf16(&b));
    let sum =
        |r: usize, c: usize| -> f64 { (0..64).map(|k| f64::from(a[r * 64 + k]) * f64::from(b[c * 64 + k])).sum() };
    let want = (0..128).map(|i| if i / 8 < rows { sum(i / 8, i % 8) as f32 } else { 0.0 }).collect();
    (gpu.read_all(&d).unwrap(), want)
}

#[test]
fn a_product_by_asynchronous_copies() {
    for gpu in gpus() {
        for (seed, rows) in [(1, 16), (2, 16), (3, 11), (4, 0)] {
            let (got, want) = product(&gpu, seed, rows, 0);
            let error = relative_error(&got, &want);
            assert!(error <= 1e-6, "{}: {rows} rows: {error:e}", gpu.info().name);
        }
    }
}

#[test]
fn a_missing_wait_shows() {
    let Some(gpu) = emulator() else { return };
    for mode in [1, 2] {
        let (got, want) = product(&gpu, 5, 16, mode);
        assert!(relative_error(&got, &want) > 0.1, "mode {mode} reads data that has not arrived");
    }
}

#[test]
fn bulk_copies_through_a_ring() {
    let mut numbers = Numbers(6);
    let input: Vec<u32> = (0..2048).map(|_| numbers.bits() as u32).collect();
    let sum = |w: usize| (0..8).fold(0u32, |s, i| s.wrapping_add(input[i * 256 + w]));
    let want: Vec<u32> = (0..256).map(|w| sum(255 - w)).collect();
    for gpu in gpus() {
        for _ in 0..2 {
            let (a, d) = (gpu.upload("a", &input).unwrap(), gpu.alloc::<u32>("d", 256).unwrap());
            launch(&gpu, "selftest_bulk", 128, 2048, Args { a: a.ptr(), b: Ptr::NULL, d: d.ptr(), mode: 0, rows: 0 });
            assert_eq!(gpu.read_all(&d).unwrap(), want, "{}", gpu.info().name);
        }
    }
}

/// The defines of `selftest_wgmma`, and whether its operand is overwritten too early.
#[derive(Debug, Clone, Copy)]
struct Warpgroup {
    columns: usize,
    turned: bool,
    plain: bool,
    registers: bool,
    mode: u32,
}

/// Error of a warpgroup's product against f64.
fn warpgroup(gpu: &Gpu, w: Warpgroup) -> treeline_cuda::Result<f64> {
    let (n, mut numbers) = (w.columns, Numbers(7 + w.columns as u64));
    let (a, b) = (to_bf16(&numbers.floats(64 * 64, 1.0)), to_bf16(&numbers.floats(64 * n, 1.0)));
    let (at, bt) = (gpu.upload("a", &a)?, gpu.upload("b", &b)?);
    let d: Buffer<f32> = gpu.alloc("d", 64 * n)?;
    let flag = i64::from;
    let defines =
        [("COLUMNS", n as i64), ("TURNED", flag(w.turned)), ("PLAIN", flag(w.plain)), ("REGISTERS", flag(w.registers))];
    let kernel = gpu.kernel("selftest_wgmma.cu", "selftest_wgmma", &defines)?;
    let launch = Launch { grid: [1, 1, 1], block: 128, shared: 1024 + 8192 + 8192 * n.div_ceil(64) as u32 };
    gpu.launch(&kernel, launch, &Args { a: at.ptr(), b: bt.ptr(), d: d.ptr(), mode: w.mode, rows: 0 })?;
    let (a, b) = (from_bf16(&a), from_bf16(&b));
    let b_at = |k: usize, c: usize| f64::from(if w.turned { b[k * n + c] } else { b[c * 64 + k] });
    let sum = |i: usize| (0..64).map(|k| f64::from(a[i / n * 64 + k]) * b_at(k, i % n)).sum::<f64>() as f32;
    Ok(relative_error(&gpu.read_all(&d)?, &(0..64 * n).map(sum).collect::<Vec<_>>()))
}

#[test]
fn products_of_a_warpgroup_in_every_layout() {
    for gpu in gpus() {
        if !matches!(gpu.info().arch, Arch::Host | Arch::Sm90a) {
            continue;
        }
        // Every size once, every layout once.
        let sizes = [8, 16, 32, 64, 128, 256].map(|columns| (columns, 0u32));
        for (columns, choice) in sizes.into_iter().chain((1..8).map(|choice| (64, choice))) {
            let [turned, plain, registers] = [0, 1, 2].map(|bit| choice >> bit & 1 == 1);
            let w = Warpgroup { columns, turned, plain, registers, mode: 0 };
            let error = warpgroup(&gpu, w).unwrap();
            assert!(error <= 1e-6, "{}: {w:?}: {error:e}", gpu.info().name);
        }
    }
}

#[test]
fn an_operand_that_changes_too_early_shows() {
    let Some(gpu) = emulator() else { return };
    let w = Warpgroup { columns: 64, turned: false, plain: false, registers: false, mode: 1 };
    let said = warpgroup(&gpu, w).unwrap_err().to_string();
    assert!(said.contains("an operand changed"), "{said}");
}
