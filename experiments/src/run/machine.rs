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

/// Nanoseconds that a thread has run, and has waited for a core while it could have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThreadTime {
    ran: u64,
    waited: u64,
}

impl ThreadTime {
    /// Of the calling thread so far, where the system tells (Linux).
    pub fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(str::parse);
        Some(Self { ran: numbers.next()?.ok()?, waited: numbers.next()?.ok()? })
    }

    /// The doubt about times measured between `self` and `end`: other work on the machine can slow one cell and not its
    /// neighbour, which turns speed-ups round. `None` below a tenth of the time, or below half a second in all.
    pub fn doubt(self, end: Self) -> Option<String> {
        let (ran, waited) = (end.ran.saturating_sub(self.ran), end.waited.saturating_sub(self.waited));
        let all = ran + waited;
        (all >= 500_000_000 && waited * 10 >= all).then(|| {
            format!(
                "{:.0} % of the time was spent waiting for a core, so step times and speed-ups are not to be compared: \
                 repeat the run on a quiet machine (acceptance is not affected)",
                waited as f64 / all as f64 * 100.0
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ThreadTime;

    #[test]
    fn a_busy_machine_is_named_and_a_quiet_one_is_not() {
        let at = |ran, waited| ThreadTime { ran, waited };
        let zero = at(1_000, 2_000);
        assert!(zero.doubt(at(7_000_001_000, 3_000_002_000)).is_some_and(|d| d.starts_with("30 % of the time")));
        assert_eq!(zero.doubt(at(9_500_001_000, 500_002_000)), None);
        // Too short to say anything.
        assert_eq!(zero.doubt(at(100_001_000, 100_002_000)), None);
        assert_eq!(ThreadTime::parse("12 34 5\n"), Some(at(12, 34)));
        assert_eq!(ThreadTime::parse("12"), None);
    }
}
