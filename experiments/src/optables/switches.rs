//! Where a collective changes its algorithm: from the engines' configuration where it is known, and from the measured curve.

use super::sheet::Cell;

/// One-shot all-reduce up to these sizes, two-shot from them on: the thresholds of the kernel that vLLM wrote and SGLang shared before 0.5.14
/// (`csrc/custom_all_reduce.cuh`: 512 KiB up to 4 ranks, 256 KiB up to 8; two ranks always one-shot).
const ONE_SHOT: [(i64, i64); 2] = [(4, 512 << 10), (8, 256 << 10)];

/// α + M/BW at most doubles with M, and does so gradually.
const MORE_THAN_DOUBLE: f64 = 2.05;
/// A step out of a flat stretch.
const STEP: (f64, f64) = (1.6, 1.3);
/// A larger message that is faster.
const FASTER: f64 = 0.95;
/// Times below this many µs are too noisy to tell.
const TELLING: f64 = 8.0;

/// The cell of the column `switches`: sizes in bytes from which another algorithm runs, `;` between them, `-` for none.
pub(super) fn cell(key: &[Cell], points: &[(i64, f64)]) -> Cell {
    let text = |at: usize| if let Cell::Text(text) = &key[at] { text.as_str() } else { "" };
    let number = |at: usize| if let Cell::Number(n) = key[at] { n } else { 0 };
    let (engine, version, op, launch, ranks) = (text(1), text(2), text(4), text(5), number(6));
    let mut found: Vec<i64> = Vec::new();
    if op == "all_reduce" && (engine == "vllm" || (engine == "sglang" && version != "0.5.14")) {
        found.extend(ONE_SHOT.iter().filter(|(r, _)| *r == ranks).map(|(_, bytes)| *bytes));
    }
    // Eager times are the host's and jump about.
    if launch != "eager" {
        found.extend(jumps(points, launch == "graph"));
    }
    found.sort_unstable();
    found.dedup();
    if found.is_empty() {
        return "-".into();
    }
    let list: Vec<String> = found.iter().map(i64::to_string).collect();
    list.join(";").as_str().into()
}

fn jumps(points: &[(i64, f64)], graph: bool) -> Vec<i64> {
    let mut found = Vec::new();
    for (i, pair) in points.windows(2).enumerate() {
        let (before, after) = (pair[0].1, pair[1].1);
        let grown = after / before;
        let grew = if i > 0 { before / points[i - 1].1 } else { 1.0 };
        let step = grown > STEP.0 && (FASTER..STEP.1).contains(&grew) && before > TELLING / 2.0;
        let faster = grown < FASTER && before > TELLING;
        if after > TELLING && before > TELLING / 2.0 && (grown > MORE_THAN_DOUBLE || (graph && (step || faster))) {
            found.push(pair[1].0);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::jumps;

    #[test]
    fn a_step_and_a_drop_are_switches_and_smooth_growth_is_none() {
        let smooth: Vec<(i64, f64)> = (8..24).map(|i| (1 << i, 5.0 + f64::from(1 << i) / 2e5)).collect();
        assert_eq!(jumps(&smooth, true), Vec::<i64>::new());
        let mut stepped = smooth.clone();
        stepped.iter_mut().filter(|p| p.0 >= 1 << 18).for_each(|p| p.1 += 15.0);
        stepped.iter_mut().filter(|p| p.0 >= 1 << 21).for_each(|p| p.1 -= 14.0);
        assert_eq!(jumps(&stepped, true), [1 << 18, 1 << 21]);
    }
}
