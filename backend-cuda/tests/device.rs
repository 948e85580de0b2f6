//! The device by its face: memory, copies, launches, graphs, events. Runs on the emulator and, where there is one, the GPU.

#![allow(clippy::print_stderr, reason = "a test says what it skipped and what it found")]

mod check;

use bytemuck::{Pod, Zeroable};
use check::{Check, THREADS, kernel};
use treeline_cuda::device::{Buffer, Gpu, Kernel, KernelArgs, Launch};
use treeline_cuda::testing::{Numbers, gpus};
use treeline_cuda::{CudaError, Result};

/// One launch over all of `x` with `words` floats of shared memory.
fn check(gpu: &Gpu, kernel: &Kernel, x: &Buffer<f32>, y: &Buffer<f32>, words: u32, scale: f32) -> Result<()> {
    let count = x.len() as u32;
    let launch = Launch { grid: [count.div_ceil(THREADS), 1, 1], block: THREADS, shared: words * 4 };
    gpu.launch(kernel, launch, &Check { x: x.ptr(), y: y.ptr(), count, words, scale, repeats: 1 })
}

/// What `check.cu` computes; its blocks must be full.
fn want(x: &[f32], scale: f32) -> Vec<f32> {
    let mirrored = |i: usize| i - i % THREADS as usize + (THREADS as usize - 1 - i % THREADS as usize);
    (0..x.len()).map(|i| x[mirrored(i)] * scale + (i % THREADS as usize) as f32).collect()
}

#[test]
fn a_device_says_what_it_is() {
    for gpu in gpus() {
        let info = gpu.info();
        assert!(!info.name.is_empty() && info.sms > 0 && info.memory > 0 && info.shared >= 48 << 10, "{info:?}");
        assert!(gpu.free_bytes().unwrap() <= info.memory, "{info:?}");
        eprintln!("{info:?}");
    }
}

#[test]
fn copies_give_back_what_went_in() {
    for gpu in gpus() {
        let mut numbers = Numbers(1);
        for n in [1usize, 3, 255, 1 << 12, (1 << 16) + 5] {
            let data: Vec<u32> = (0..n).map(|_| numbers.bits() as u32).collect();
            let a = gpu.upload("a", &data).unwrap();
            assert_eq!(gpu.read_all(&a).unwrap(), data);
            let b = gpu.zeroed::<u32>("b", n).unwrap();
            assert!(gpu.read_all(&b).unwrap().iter().all(|v| *v == 0));
            gpu.copy(b.ptr(), a.ptr(), n * 4).unwrap();
            let mut host = gpu.pinned::<u32>(n).unwrap();
            assert!(host.as_slice().iter().all(|v| *v == 0), "pinned memory is not zeroed");
            gpu.pull(&host, b.ptr(), n).unwrap();
            gpu.sync().unwrap();
            assert_eq!(host.as_slice(), data);
            host.as_mut_slice().reverse();
            gpu.push(a.ptr(), &host, n / 2).unwrap();
            let back = gpu.read_all(&a).unwrap();
            assert_eq!(back[..n / 2], host.as_slice()[..n / 2]);
            assert_eq!(back[n / 2..], data[n / 2..]);
            assert!(gpu.push(a.ptr(), &host, n + 1).is_err(), "a copy beyond pinned memory");
        }
        // From other than the first element.
        let a = gpu.upload("a", &[1u16, 2, 3, 4, 5]).unwrap();
        assert_eq!(gpu.read::<u16>(a.at(3), 2).unwrap(), [4, 5]);
        gpu.copy_in(a.at(1), &[9u16]).unwrap();
        assert_eq!(gpu.read_all(&a).unwrap(), [1, 9, 3, 4, 5]);
        assert!(gpu.read::<u16>(a.ptr(), 0).unwrap().is_empty());
    }
}

#[test]
fn kernels_run_with_little_and_much_shared_memory() {
    for gpu in gpus() {
        let kernel = kernel(&gpu);
        let x = Numbers(2).floats(7 * THREADS as usize, 4.0);
        let (a, y) = (gpu.upload("x", &x).unwrap(), gpu.zeroed("y", x.len()).unwrap());
        for words in [THREADS, 10_000, gpu.info().shared / 4] {
            check(&gpu, &kernel, &a, &y, words, 0.5).unwrap();
            assert_eq!(gpu.read_all(&y).unwrap(), want(&x, 0.5), "{words} words");
            gpu.fill(&y, 0).unwrap();
        }
    }
}

/// Nothing here needs the order that an early launch gives up: `x` stays, and each launch writes the same `y`.
#[test]
fn an_early_launch_is_a_launch() {
    for gpu in gpus() {
        let (kernel, n) = (kernel(&gpu), 5 * THREADS as usize);
        let data = Numbers(5).floats(n, 1.0);
        let (x, y) = (gpu.upload("x", &data).unwrap(), gpu.zeroed::<f32>("y", n).unwrap());
        gpu.sync().unwrap();
        let args = Check { x: x.ptr(), y: y.ptr(), count: n as u32, words: 256, scale: 2.0, repeats: 1 };
        let launch = Launch { grid: [5, 1, 1], block: THREADS, shared: 1024 };
        gpu.launch_early(&kernel, launch, &args).unwrap();
        assert_eq!(gpu.read_all(&y).unwrap(), want(&data, 2.0));
        let graph = gpu.capture(|| (0..3).try_for_each(|_| gpu.launch_early(&kernel, launch, &args))).unwrap();
        assert_eq!(graph.nodes(), 3);
        gpu.fill(&y, 0).unwrap();
        graph.launch().unwrap();
        assert_eq!(gpu.read_all(&y).unwrap(), want(&data, 2.0));
    }
}

#[test]
fn what_does_not_fit_a_kernel_is_refused_by_name() {
    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    #[repr(C)]
    struct Short(u64);
    impl KernelArgs for Short {}
    for gpu in gpus() {
        let kernel = kernel(&gpu);
        let error = gpu.launch(&kernel, Launch::flat(1, 32), &Short(0)).unwrap_err().to_string();
        assert!(error.contains("check"), "{error}");
        assert!(gpu.launch(&kernel, Launch::flat(0, 32), &Short(0)).is_err());
        let error = gpu.kernel("check.cu", "nonesuch", &[]).unwrap_err().to_string();
        assert!(error.contains("nonesuch"), "{error}");
        let error = gpu.kernel("nonesuch.cu", "check", &[]).unwrap_err().to_string();
        assert!(error.contains("nonesuch.cu"), "{error}");
        // The device goes on.
        gpu.sync().unwrap();
    }
}

#[test]
fn a_graph_reads_its_buffers_anew_at_each_launch() {
    for gpu in gpus() {
        let (kernel, n) = (kernel(&gpu), 3 * THREADS as usize);
        let (mut host, out) = (gpu.pinned::<f32>(n).unwrap(), gpu.pinned::<f32>(n).unwrap());
        let (x, y) = (gpu.zeroed("x", n).unwrap(), gpu.alloc("y", n).unwrap());
        let graph = gpu
            .capture(|| {
                gpu.push(x.ptr(), &host, n)?;
                gpu.fill(&y, 0xFF)?;
                check(&gpu, &kernel, &x, &y, 300, 2.0)?;
                gpu.copy(x.ptr(), y.ptr(), n * 4)?;
                check(&gpu, &kernel, &x, &y, 500, -1.0)?;
                gpu.pull(&out, y.ptr(), n)
            })
            .unwrap();
        assert_eq!(graph.nodes(), 6);
        gpu.sync().unwrap();
        assert!(out.as_slice().iter().all(|v| *v == 0.0), "recording ran something");
        for seed in 10..14 {
            let data = Numbers(seed).floats(n, 1.0);
            host.as_mut_slice().copy_from_slice(&data);
            graph.launch().unwrap();
            gpu.sync().unwrap();
            assert_eq!(out.as_slice(), want(&want(&data, 2.0), -1.0));
        }
    }
}

#[test]
fn a_failed_or_forbidden_recording_leaves_the_device_usable() {
    for gpu in gpus() {
        let (kernel, n) = (kernel(&gpu), THREADS as usize);
        let data = Numbers(3).floats(n, 1.0);
        let (x, y) = (gpu.upload("x", &data).unwrap(), gpu.zeroed("y", n).unwrap());
        let failed = gpu.capture(|| {
            check(&gpu, &kernel, &x, &y, 256, 1.0)?;
            Err(CudaError::Model("on purpose".into()))
        });
        assert!(failed.unwrap_err().to_string().contains("on purpose"));
        assert!(gpu.read_all(&y).unwrap().iter().all(|v| *v == 0.0), "a failed recording ran");
        // Memory dropped inside a recording is freed after it.
        let dropped = gpu.alloc::<f32>("dropped", n).unwrap();
        let graph = gpu.capture(|| {
            drop(dropped);
            check(&gpu, &kernel, &x, &y, 256, 3.0)
        });
        graph.unwrap().launch().unwrap();
        assert_eq!(gpu.read_all(&y).unwrap(), want(&data, 3.0));
    }
}

#[test]
fn events_time_what_lies_between_them() {
    for gpu in gpus() {
        let (kernel, n) = (kernel(&gpu), THREADS as usize);
        let (x, y) = (gpu.zeroed("x", n).unwrap(), gpu.zeroed("y", n).unwrap());
        let (start, end) = (gpu.event().unwrap(), gpu.event().unwrap());
        start.record().unwrap();
        check(&gpu, &kernel, &x, &y, 256, 1.0).unwrap();
        end.record().unwrap();
        end.wait().unwrap();
        let ms = start.elapsed_ms(&end).unwrap();
        assert!((0.0..10_000.0).contains(&ms), "{ms} ms");
        assert!(start.elapsed_ms(&gpu.event().unwrap()).is_err(), "an event that was never recorded has a time");
    }
}

#[test]
fn another_thread_may_go_on_with_the_device() {
    for gpu in gpus() {
        let n = THREADS as usize;
        let data = Numbers(4).floats(n, 1.0);
        let (x, y) = (gpu.upload("x", &data).unwrap(), gpu.zeroed("y", n).unwrap());
        let kernel = kernel(&gpu);
        let (gpu, x, y) = std::thread::spawn(move || {
            check(&gpu, &kernel, &x, &y, 256, 1.5).unwrap();
            (gpu, x, y)
        })
        .join()
        .unwrap();
        assert_eq!(gpu.read_all(&y).unwrap(), want(&data, 1.5));
        drop((x, gpu));
        // Its buffers keep a device alive.
        drop(y);
    }
}
