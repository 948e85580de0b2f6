//! The emulator against a GPU (where there is one), and the errors that only the emulator can give.

use bytemuck::{Pod, Zeroable};
use treeline_cuda::device::{KernelArgs, Launch, Ptr};
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

#[test]
fn sums_by_shared_memory_and_shuffles() {
    for gpu in gpus() {
        let mut numbers = Numbers(1);
        let input: Vec<u32> = (0..5000).map(|_| numbers.bits() as u32).collect();
        let (x, y) = (gpu.upload("x", &input).unwrap(), gpu.alloc::<u32>("y", 5).unwrap());
        let kernel = gpu.kernel(FILE, "selftest_sum", &[]).unwrap();
        let args = Args { input: x.ptr(), out: y.ptr(), n: 5000, mode: 0 };
        for _ in 0..2 {
            gpu.launch(&kernel, Launch::flat(5, 256), &args).unwrap();
            let want: Vec<u32> = input.chunks(1024).map(|c| c.iter().fold(0u32, |a, b| a.wrapping_add(*b))).collect();
            assert_eq!(gpu.read_all(&y).unwrap(), want);
        }
    }
}
