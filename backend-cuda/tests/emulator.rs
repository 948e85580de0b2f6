//! The language of kernels, feature by feature, on the emulator and on a GPU, against references of their own.

use bytemuck::{Pod, Zeroable};
use half::bf16;
use treeline_cuda::device::{Gpu, KernelArgs, Launch, Ptr};
use treeline_cuda::testing::{Numbers, gpus};

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Args {
    input: Ptr,
    out: Ptr,
    n: u32,
    mode: u32,
}

impl KernelArgs for Args {}

const FILE: &str = "selftest.cu";

fn random(seed: u64, n: usize) -> Vec<u32> {
    let mut numbers = Numbers(seed);
    (0..n).map(|_| numbers.bits() as u32).collect()
}

/// `words` numbers that `kernel` makes of `input`, from memory that starts as `start` bytes.
fn run(gpu: &Gpu, kernel: &'static str, launch: Launch, input: &[u32], words: usize, start: u8) -> Vec<u32> {
    let (x, y) = (gpu.upload("x", input).unwrap(), gpu.alloc::<u32>("y", words).unwrap());
    gpu.fill(&y, start).unwrap();
    let args = Args { input: x.ptr(), out: y.ptr(), n: input.len() as u32, mode: 0 };
    gpu.launch(&gpu.kernel(FILE, kernel, &[]).unwrap(), launch, &args).unwrap();
    gpu.read_all(&y).unwrap()
}

#[test]
fn sums_by_shared_memory_and_shuffles() {
    let input = random(1, 5000);
    let want: Vec<u32> = input.chunks(1024).map(|c| c.iter().fold(0u32, |a, b| a.wrapping_add(*b))).collect();
    for gpu in gpus() {
        // Twice: the emulator takes its threads in both orders.
        for _ in 0..2 {
            assert_eq!(run(&gpu, "selftest_sum", Launch::flat(5, 256), &input, 5, 0xFF), want);
        }
    }
}

#[test]
fn collectives_of_a_warp() {
    let mut input = random(2, 64);
    input[40] = 7;
    input[12] = 80;
    let block_count = input.iter().filter(|x| *x & 1 == 1).count() as u32;
    for gpu in gpus() {
        let got = run(&gpu, "selftest_warp", Launch::flat(1, 64), &input, 64 * 20, 0xFF);
        for thread in 0..64usize {
            let (lane, warp) = (thread % 32, &input[thread / 32 * 32..][..32]);
            let own = warp[lane];
            let up = |by: usize, width: usize| if lane % width < by { own } else { warp[lane - by] };
            let down = |by: usize, width: usize| if lane % width + by >= width { own } else { warp[lane + by] };
            let votes = |f: &dyn Fn(u32) -> bool| warp.iter().rev().fold(0u32, |m, x| m << 1 | u32::from(f(*x)));
            let half = if lane < 16 { 0xffff } else { 0xffff_0000 };
            let of_half = warp[lane / 16 * 16..][..16].iter().fold(0, |a, b| a | b);
            let want = [
                warp[lane * 7 % 32],
                warp[lane / 8 * 8 + 3],
                up(3, 32),
                up(1, 4),
                down(5, 32),
                down(2, 16),
                warp[lane ^ 9],
                if lane < 16 { own } else { warp[lane ^ 16] },
                votes(&|x| x & 1 == 1),
                u32::from(votes(&|x| x % 40 == 0) != 0) * 2 + u32::from(votes(&|x| x % 40 == 0) == 0),
                votes(&|x| x % 5 == own % 5),
                warp.iter().fold(0u32, |a, b| a.wrapping_add(*b)),
                *warp.iter().max().unwrap(),
                *warp.iter().map(|x| *x as i32).min().as_ref().unwrap() as u32,
                warp.iter().fold(0, |a, b| a ^ b),
                warp[lane ^ 1],
                ((down(1, 32) % 1000) as f32).to_bits(),
                of_half & votes(&|x| x & 2 == 2) & half,
                block_count,
                2,
            ];
            assert_eq!(got[thread * 20..][..20], want, "{}, thread {thread}", gpu.info().name);
        }
    }
}

/// Nearest bf16 of a number given in f64.
fn round(x: f64) -> u32 {
    u32::from(bf16::from_f64(x).to_bits())
}

/// A function of three bf16 on both halves.
fn halves(a: u32, b: u32, c: u32, f: impl Fn(f64, f64, f64) -> f64) -> u32 {
    let half = |x: u32, i: u32| f64::from(f32::from_bits((x & 0xbfff_bfff) >> (16 * i) << 16));
    (0..2).fold(0, |r, i| r | round(f(half(a, i), half(b, i), half(c, i))) << (16 * i))
}

fn bytes_by(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    u32::from_le_bytes(std::array::from_fn(|i| bytes[(selector >> (4 * i)) as usize & 7]))
}

#[test]
fn functions_of_two_words() {
    let input = random(3, 128);
    for gpu in gpus() {
        let got = run(&gpu, "selftest_bits", Launch::flat(1, 64), &input, 64 * 28, 0xFF);
        for t in 0..64 {
            let (a, b) = (input[t], input[t + 64]);
            let c = a.wrapping_mul(b);
            let float = |a: u32| f32::from_bits((a & 0x3fff_ffff) | 0x2000_0000);
            let (x, y) = (float(a), float(b));
            let ffs = |x: u32| if x == 0 { 0 } else { x.trailing_zeros() + 1 };
            let high = |a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32;
            let signed = |a: u32, b: u32| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32;
            let wide = u64::from(b) << 32 | u64::from(a);
            let shifted = (i64::from(b as i32) << 20) as u64;
            let want = [
                a.count_ones() + ffs(b) + (a >> (b % 32)).leading_zeros(),
                a.reverse_bits(),
                high(a, b).wrapping_add(signed(a, b)),
                (((u128::from(a) << 20) * (u128::from(b) << 20)) >> 64) as u32,
                a.count_ones()
                    + b.count_ones()
                    + (i64::from(a)).leading_zeros()
                    + if shifted == 0 { 0 } else { shifted.trailing_zeros() + 1 },
                bytes_by(a, b, 0x5170),
                bytes_by(a, b, b & 0x7777),
                (a & b) | c,
                a ^ b ^ c,
                round(x.into()) | round((-y).into()) << 16,
                halves(a, b, c, |a, b, c| a.mul_add(b, c)),
                halves(a, b, c, |a, b, _| a * b),
                halves(a, b, c, |a, b, _| a + b),
                halves(a, b, c, |a, b, _| a - b),
                x.mul_add(y, -x).to_bits(),
                (x.round_ties_even() as i32 ^ (-y * 3.0).floor() as i32 ^ y as i32) as u32,
                x.round_ties_even() as u32,
                (x.max(y) - x.min(y)).to_bits(),
                a.min(b) ^ (a as i32).max(b as i32) as u32,
                ((wide << (b % 32)) >> 32) as u32 ^ (wide >> (a % 32)) as u32,
                round(x.into()) | round((-y).into()) << 16,
                (x.sqrt() / y).to_bits(),
                (x * y + x).to_bits(),
                (x.round_ties_even() + y.floor() - (x * 0.5).trunc()).to_bits(),
                (a & 0xbfff) << 16 ^ (a & 0xffff_0000),
                (f64::from(x) * f64::from(y) + 1.0).to_bits() as u32,
                x.to_bits(),
                i32::MAX as u32,
            ];
            assert_eq!(got[t * 28..][..28], want, "{}, thread {t}: {a:#x} {b:#x}", gpu.info().name);
        }
    }
}

#[test]
fn atomics_in_any_order() {
    let input = random(4, 9 * 128);
    let sum = input.iter().fold(0u32, |a, b| a.wrapping_add(*b));
    let wide: u64 = input.iter().map(|x| u64::from(*x) << 8).sum();
    for gpu in gpus() {
        let got = run(&gpu, "selftest_atomics", Launch::flat(9, 128), &input, 12, 0);
        let most = input.iter().max().unwrap();
        let signed = input.iter().map(|x| *x as i32).max().unwrap() as u32;
        let or = input.iter().fold(0, |a, b| a | (b & 0xff));
        let xor = input.iter().fold(0, |a, b| a ^ b);
        let want = [sum, *most, 0, or, xor, signed, wide as u32, (wide >> 32) as u32, 9, 9, 0, 0];
        assert_eq!(got, want, "{}", gpu.info().name);
    }
}

#[test]
fn blocks_wait_for_those_before() {
    let input = random(5, 300);
    let want: Vec<u32> = input
        .iter()
        .scan(0u32, |sum, x| {
            *sum = sum.wrapping_add(*x);
            Some(*sum)
        })
        .collect();
    for gpu in gpus() {
        let got = run(&gpu, "selftest_chain", Launch::flat(300, 32), &input, 301, 0);
        assert_eq!((&got[..300], got[300]), (&want[..], 300), "{}", gpu.info().name);
    }
}
