//! The machine, in words.

/// Cores that this process may use.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Model name of the CPU, where the system tells.
pub(super) fn cpu() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|l| l.starts_with("model name"))?;
    let name = line.split_once(':')?.1.split_whitespace().collect::<Vec<_>>().join(" ");
    (!name.is_empty()).then_some(name)
}

/// Memory in bytes, where the system tells.
pub(super) fn memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find(|l| l.starts_with("MemTotal:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

/// One line for results.
pub(super) fn line() -> String {
    let plural = if cores() == 1 { "core" } else { "cores" };
    format!("{}, {} {plural}", cpu().unwrap_or_else(|| std::env::consts::ARCH.to_owned()), cores())
}
