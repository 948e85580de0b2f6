//! Cores, memory and what the CPU can do.

use serde::Serialize;

/// The machine.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    /// Cores that this process may use.
    pub cores: usize,
    /// Main memory; `null` where the system does not say.
    pub memory_bytes: Option<u64>,
    /// The CPU's name; `null` where the system does not say.
    pub cpu: Option<String>,
    /// Operating system.
    pub os: &'static str,
    /// Architecture.
    pub arch: &'static str,
    /// CPU features that matter to matrix products.
    pub features: Vec<Feature>,
}

/// One CPU feature.
#[derive(Debug, Serialize)]
pub(super) struct Feature {
    /// Its name.
    pub name: &'static str,
    /// Whether the CPU has it.
    pub present: bool,
}

/// Looks.
pub(super) fn look() -> Machine {
    Machine {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: std::fs::read_to_string("/proc/meminfo").ok().and_then(|t| memory(&t)),
        cpu: std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|t| cpu(&t)),
        os: std::env::consts::OS,
        arch: std::env::consts::ARCH,
        features: features(),
    }
}

/// `MemTotal` in bytes.
fn memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn cpu(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|l| l.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<Feature> {
    vec![
        Feature { name: "avx2", present: std::arch::is_x86_feature_detected!("avx2") },
        Feature { name: "fma", present: std::arch::is_x86_feature_detected!("fma") },
        Feature { name: "avx512f", present: std::arch::is_x86_feature_detected!("avx512f") },
    ]
}

#[cfg(target_arch = "aarch64")]
fn features() -> Vec<Feature> {
    vec![Feature { name: "neon", present: std::arch::is_aarch64_feature_detected!("neon") }]
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<Feature> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read_or_refused() {
        assert_eq!(memory("MemFree: 1 kB\nMemTotal:       2048 kB\n"), Some(2048 * 1024));
        for bad in [
            "",
            "MemTotal:",
            "MemTotal: x kB",
            "MemTotal: 99999999999999999999 kB",
            "MemTotal: 18446744073709551615 kB",
        ] {
            assert_eq!(memory(bad), None, "{bad}");
        }
        assert_eq!(cpu("processor: 0\nmodel name\t: Some CPU @ 2 GHz\n").as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(cpu("model name"), None);
    }
}
