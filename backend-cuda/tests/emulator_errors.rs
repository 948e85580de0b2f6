//! What the emulator says of faults that a GPU passes over in silence, or hangs on.

use bytemuck::{Pod, Zeroable};
use treeline_cuda::CudaError;
use treeline_cuda::device::{Buffer, Dtype, Gemm, Gpu, KernelArgs, Launch, Matrix, Ptr};
use treeline_cuda::testing::emulator;

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Args {
    input: Ptr,
    out: Ptr,
    n: u32,
    mode: u32,
}

impl KernelArgs for Args {}

/// One argument less than the kernels take.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Short {
    input: Ptr,
    out: Ptr,
}

impl KernelArgs for Short {}

const N: usize = 21;

/// Where the first line that has `code` stands, as an error says it.
fn place(code: &str) -> String {
    let text = treeline_cuda::kernels::text("selftest_wrong.cu").unwrap();
    let line = text.lines().position(|l| l.contains(code)).unwrap();
    format!("selftest_wrong.cu:{}", line + 1)
}

struct Bench {
    gpu: Gpu,
    x: Buffer<u32>,
    y: Buffer<u32>,
}

impl Bench {
    fn new() -> Option<Self> {
        let gpu = emulator()?;
        let x = gpu.upload("the input", &[1u32; N]).unwrap();
        let y = gpu.zeroed("the output", N).unwrap();
        Some(Self { gpu, x, y })
    }

    fn args(&self, mode: u32) -> Args {
        Args { input: self.x.ptr(), out: self.y.ptr(), n: N as u32, mode }
    }

    fn run(&self, kernel: &'static str, block: u32, mode: u32) -> treeline_cuda::Result<()> {
        let kernel = self.gpu.kernel("selftest_wrong.cu", kernel, &[])?;
        self.gpu.launch(&kernel, Launch { grid: [2, 1, 1], block, shared: 64 }, &self.args(mode))
    }

    /// The launch fails with a message that has all of `parts`, and the device works on.
    fn check(&self, kernel: &'static str, block: u32, mode: u32, parts: &[&str]) {
        // Twice: with the threads in either order.
        for _ in 0..2 {
            let said = self.run(kernel, block, mode).unwrap_err().to_string();
            for part in parts.iter().chain(&[kernel]) {
                assert!(said.contains(part), "{kernel}, mode {mode}: no `{part}` in: {said}");
            }
        }
        self.run("wrong_race", 64, 9).unwrap();
        self.gpu.sync().unwrap();
    }
}

#[test]
fn threads_that_do_not_meet() {
    let Some(bench) = Bench::new() else { return };
    let check = |mode, parts: &[&str]| bench.check("wrong_barrier", 64, mode, parts);
    check(0, &["hangs", "32 threads wait at __syncthreads", &place(" __syncthreads();"), "32 threads have ended"]);
    check(1, &["meets another one", &place("if (threadIdx.x < 32) __syncthreads"), &place("__syncthreads_count")]);
    check(2, &["hangs", "48 threads wait at a warp collective", "16 threads have ended"]);
    check(3, &["different collectives", &place("% 2) __syncwarp"), &place("__ballot_sync")]);
    check(4, &["hangs", "64 threads wait at a named barrier"]);
    check(5, &[&place("while (ld_acquire"), "never comes"]);
    check(6, &["lane 20, which is not there"]);
}

#[test]
fn addresses_outside() {
    let Some(bench) = Bench::new() else { return };
    let check = |mode, parts: &[&str]| bench.check("wrong_address", 32, mode, parts);
    check(0, &["wrote behind `the output` (84 bytes"]);
    check(1, &["wrote before `the output`"]);
    check(2, &["4 bytes", "0 bytes behind the end", &place("ldg32")]);
    check(3, &["16 bytes", "leave their buffer"]);
    check(4, &["not aligned to 16 bytes"]);
    check(5, &["wild address", "thread 5"]);
    check(6, &["behind dynamic shared memory"]);
    check(7, &["shared address", "not aligned to 16"]);
    check(8, &["division by zero"]);
    check(9, &[&format!("{}: trap", place("__trap"))]);
    check(10, &["not initialised"]);
    check(11, &["bulk copy was not waited for"]);
}

#[test]
fn a_race_shows_between_launches() {
    let Some(bench) = Bench::new() else { return };
    let input: Vec<u32> = (0..64).collect();
    let (x, y) = (bench.gpu.upload("x", &input).unwrap(), bench.gpu.alloc::<u32>("y", 64).unwrap());
    let kernel = bench.gpu.kernel("selftest_wrong.cu", "wrong_race", &[]).unwrap();
    let run = |mode| {
        let args = Args { input: x.ptr(), out: y.ptr(), n: 64, mode };
        bench.gpu.launch(&kernel, Launch::flat(1, 64), &args).unwrap();
        bench.gpu.read_all(&y).unwrap()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(0), run(0));
}

#[test]
fn launches_that_do_not_fit() {
    let Some(bench) = Bench::new() else { return };
    let gpu = &bench.gpu;
    let kernel = gpu.kernel("selftest_wrong.cu", "wrong_race", &[]).unwrap();
    let short = Short { input: bench.x.ptr(), out: bench.y.ptr() };
    let said = gpu.launch(&kernel, Launch::flat(1, 32), &short).unwrap_err().to_string();
    assert_eq!(said, "kernel `wrong_race`: its arguments have 24 bytes, 16 were given");
    let said = gpu.launch(&kernel, Launch::flat(1, 96), &bench.args(0)).unwrap_err().to_string();
    assert!(said.contains("96 threads a block, it is built for 64"), "{said}");
    let large = Launch { grid: [1, 1, 1], block: 32, shared: 300_000 };
    assert!(gpu.launch(&kernel, large, &bench.args(0)).is_err());
    assert!(gpu.launch(&kernel, Launch::flat(0, 32), &bench.args(0)).is_err());
    let said = gpu.kernel("selftest_wrong.cu", "no_such", &[]).unwrap_err().to_string();
    assert!(said.contains("no kernel of this name"), "{said}");
    let failure = gpu.kernel("selftest_wrong.cu", "wrong_race", &[("threadIdx", 1)]).unwrap_err();
    assert!(matches!(&failure, CudaError::Compile { log, .. } if log.contains("error")), "{failure}");
    assert!(matches!(gpu.kernel("no_such.cu", "x", &[]), Err(CudaError::Compile { .. })));
}

#[test]
fn copies_fills_and_products_outside() {
    let Some(bench) = Bench::new() else { return };
    let (gpu, x) = (&bench.gpu, &bench.x);
    let said = gpu.copy_in(x.at(1), &[0u32; N]).unwrap_err().to_string();
    assert!(said.contains("bytes 4 to 88 of `the input`, which has 84"), "{said}");
    assert!(gpu.read::<u32>(x.ptr(), N + 1).is_err());
    assert!(gpu.copy(x.at(1), bench.y.ptr(), 4 * N).is_err());
    assert!(gpu.copy(x.ptr(), Ptr(4096), 4).is_err());
    let pinned = gpu.pinned::<u32>(2 * N).unwrap();
    assert!(gpu.push(x.ptr(), &pinned, 2 * N).is_err());
    let matrix = Matrix::new(x.ptr(), 5, Dtype::F32);
    let gemm = Gemm { rows: 4, outputs: 5, inputs: 5, batch: 1, x: matrix, w: matrix, y: matrix, add: false };
    assert!(gpu.gemm(&gemm).unwrap_err().to_string().contains("gemm, w"));
    let failure = gpu.alloc::<u8>("too much", 1 << 40).unwrap_err();
    assert!(matches!(failure, CudaError::Memory { .. }), "{failure}");
}

#[test]
fn what_a_capture_cannot_hold() {
    let Some(bench) = Bench::new() else { return };
    let gpu = &bench.gpu;
    let refused = |body: &dyn Fn() -> treeline_cuda::Result<()>| {
        let said = gpu.capture(body).unwrap_err().to_string();
        assert!(said.contains("inside a capture"), "{said}");
    };
    refused(&|| gpu.alloc::<u32>("new", 4).map(drop));
    refused(&|| gpu.read_all(&bench.y).map(drop));
    refused(&|| gpu.copy_in(bench.x.ptr(), &[1u32]));
    refused(&|| gpu.sync());
    refused(&|| gpu.capture(|| Ok(())).map(drop));
    // After a failed capture the device works as before.
    gpu.copy_in(bench.x.ptr(), &[5u32]).unwrap();
    let graph = gpu.capture(|| gpu.copy(bench.y.ptr(), bench.x.ptr(), 4)).unwrap();
    assert_eq!((graph.nodes(), gpu.read::<u32>(bench.y.ptr(), 1).unwrap()), (1, vec![0]));
    graph.launch().unwrap();
    assert_eq!(gpu.read::<u32>(bench.y.ptr(), 1).unwrap(), [5]);
}
