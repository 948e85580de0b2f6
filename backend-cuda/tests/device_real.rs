//! What only a GPU shows: memory that runs out, faults, phases inside a graph, power.

#![allow(clippy::print_stderr, reason = "a test says what it skipped and what it found")]

mod check;

use check::{Check, THREADS, kernel};
use std::process::Command;
use treeline_cuda::device::{Launch, Ptr};
use treeline_cuda::probe::{Meter, probe};
use treeline_cuda::testing::real;
use treeline_cuda::{CudaError, Result};

#[test]
fn nothing_that_waits_or_allocates_is_recorded() {
    let Some(gpu) = real() else { return };
    let x = gpu.zeroed::<f32>("x", 8).unwrap();
    let inside: [&dyn Fn() -> Result<()>; 4] = [
        &|| gpu.alloc::<f32>("more", 8).map(drop),
        &|| gpu.read_all(&x).map(drop),
        &|| gpu.copy_in(x.ptr(), &[1.0f32]),
        &|| gpu.sync(),
    ];
    for body in inside {
        let error = gpu.capture(body).unwrap_err().to_string();
        assert!(error.contains("recorded"), "{error}");
        assert!(gpu.read_all(&x).unwrap().iter().all(|v| *v == 0.0));
    }
}

#[test]
fn phases_inside_a_graph_are_timed() {
    let Some(gpu) = real() else { return };
    let (kernel, n) = (kernel(&gpu), THREADS as usize);
    let (x, y) = (gpu.zeroed::<f32>("x", n).unwrap(), gpu.zeroed::<f32>("y", n).unwrap());
    let marks: Vec<_> = (0..3).map(|_| gpu.event().unwrap()).collect();
    let run = |repeats| {
        let args = Check { x: x.ptr(), y: y.ptr(), count: n as u32, words: 256, scale: 1.0, repeats };
        gpu.launch(&kernel, Launch { grid: [1, 1, 1], block: THREADS, shared: 1024 }, &args)
    };
    let graph = gpu
        .capture(|| {
            marks[0].record()?;
            run(1)?;
            marks[1].record()?;
            run(2_000_000)?;
            marks[2].record()
        })
        .unwrap();
    for _ in 0..2 {
        graph.launch().unwrap();
        gpu.sync().unwrap();
        let (short, long) = (marks[0].elapsed_ms(&marks[1]).unwrap(), marks[1].elapsed_ms(&marks[2]).unwrap());
        assert!(long > 10.0 * short, "{short} ms, then {long} ms");
        eprintln!("phases inside a graph: {short} ms, {long} ms");
    }
}

#[test]
fn out_of_memory_says_what_is_free_and_what_to_lower() {
    let Some(gpu) = real() else { return };
    let free = gpu.free_bytes().unwrap();
    let error = gpu.alloc::<u8>("the cache of layer 7", free + (1 << 30)).unwrap_err();
    assert!(matches!(error, CudaError::Memory { .. }), "{error:?}");
    let text = error.to_string();
    let parts = ["the cache of layer 7", &format!("{} MiB", (free + (1 << 30)) >> 20), "are free", "lower"];
    assert!(parts.iter().all(|p| text.contains(p)), "{text}");
    eprintln!("{text}");
    // Memory comes back when a buffer is dropped.
    for _ in 0..4 {
        drop(gpu.alloc::<u8>("half of it", free / 2 + free / 8).unwrap());
    }
}

/// A fault of a kernel ends the context of its process, so the test runs itself a second time.
#[test]
fn a_fault_of_a_kernel_is_named() {
    let inner = std::env::var_os("TREELINE_FAULT").is_some();
    let Some(gpu) = real() else { return };
    if !inner {
        for patient in ["0", "1"] {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "a_fault_of_a_kernel_is_named", "--nocapture"]);
            let output = command.env("TREELINE_FAULT", "1").env("TREELINE_SYNC", patient).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let line = text.lines().find(|l| l.starts_with("fault: ")).unwrap_or_else(|| panic!("{text}"));
            assert!(line.contains("`check`") && line.contains("CUDA_ERROR_"), "{line}");
            assert!(output.status.success(), "{text}");
            eprintln!("{line}");
        }
        return;
    }
    let kernel = kernel(&gpu);
    let bad = Check { x: Ptr(64), y: Ptr(64), count: 32, words: 256, scale: 1.0, repeats: 1 };
    let launch = Launch { grid: [1, 1, 1], block: 32, shared: 1024 };
    let error = gpu.launch(&kernel, launch, &bad).and_then(|()| gpu.sync()).unwrap_err();
    eprintln!("fault: {error}");
}

#[test]
fn power_energy_and_clocks_are_read() {
    let Some(gpu) = real() else { return };
    let meter = Meter::open(0).unwrap();
    let (watts, before, clocks) = (meter.watts().unwrap(), meter.joules().unwrap(), meter.clocks_mhz().unwrap());
    std::thread::sleep(std::time::Duration::from_millis(300));
    let joules = meter.joules().unwrap() - before;
    assert!(watts > 10.0 && joules > 0.0 && clocks.0 > 0 && clocks.1 > 0, "{watts} W, {joules} J, {clocks:?} MHz");
    eprintln!("{}: {watts} W, {joules} J in 0.3 s, {clocks:?} MHz", gpu.info().name);
    let probe = probe();
    assert!(probe.missing.is_empty() && probe.gpus[0].free.is_some(), "{probe:?}");
    eprintln!("{probe:?}");
}
