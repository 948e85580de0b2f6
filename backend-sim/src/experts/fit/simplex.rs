//! Nelder and Mead's simplex: a handful of parameters, no derivatives, the same answer every time.

/// The best point found from `start`, first steps `step`. A loss that is not a number counts as the worst.
pub(super) fn minimise(start: &[f64], step: &[f64], loss: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let n = start.len();
    let value = |x: &[f64]| {
        let v = loss(x);
        if v.is_nan() { f64::INFINITY } else { v }
    };
    let mut best = start.to_vec();
    // A restart from the best point frees a simplex that has collapsed.
    for _ in 0..4 {
        let mut simplex: Vec<(f64, Vec<f64>)> = vec![(value(&best), best.clone())];
        for i in 0..n {
            let mut x = best.clone();
            x[i] += step[i];
            simplex.push((value(&x), x));
        }
        for _ in 0..400 * n {
            simplex.sort_by(|a, b| a.0.total_cmp(&b.0));
            if simplex[n].0 - simplex[0].0 < 1e-15 {
                break;
            }
            shrink_or_move(&mut simplex, &value);
        }
        simplex.sort_by(|a, b| a.0.total_cmp(&b.0));
        best = simplex.swap_remove(0).1;
    }
    best
}

/// One step on a simplex sorted by loss.
fn shrink_or_move(simplex: &mut [(f64, Vec<f64>)], value: &impl Fn(&[f64]) -> f64) {
    let n = simplex.len() - 1;
    let centre: Vec<f64> = (0..n).map(|i| simplex[..n].iter().map(|p| p.1[i]).sum::<f64>() / n as f64).collect();
    let along = |t: f64, worst: &[f64]| -> (f64, Vec<f64>) {
        let x: Vec<f64> = centre.iter().zip(worst).map(|(c, w)| c + t * (w - c)).collect();
        (value(&x), x)
    };
    let reflected = along(-1.0, &simplex[n].1);
    if reflected.0 < simplex[0].0 {
        let expanded = along(-2.0, &simplex[n].1);
        simplex[n] = if expanded.0 < reflected.0 { expanded } else { reflected };
        return;
    }
    if reflected.0 < simplex[n - 1].0 {
        simplex[n] = reflected;
        return;
    }
    let contracted = along(if reflected.0 < simplex[n].0 { -0.5 } else { 0.5 }, &simplex[n].1);
    if contracted.0 < simplex[n].0.min(reflected.0) {
        simplex[n] = contracted;
        return;
    }
    let first = simplex[0].1.clone();
    for point in &mut simplex[1..] {
        for (x, f) in point.1.iter_mut().zip(&first) {
            *x = f + 0.5 * (*x - f);
        }
        point.0 = value(&point.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valleys_are_followed_to_their_end() {
        let rosenbrock = |x: &[f64]| (1.0 - x[0]).powi(2) + 100.0 * (x[1] - x[0] * x[0]).powi(2);
        let x = minimise(&[-1.2, 1.0], &[0.1, 0.1], rosenbrock);
        assert!((x[0] - 1.0).abs() < 1e-3 && (x[1] - 1.0).abs() < 1e-3, "{x:?}");
        let one = minimise(&[0.5], &[0.5], |x| (x[0] - 3.0).abs());
        assert!((one[0] - 3.0).abs() < 1e-6, "{one:?}");
        let holes = minimise(&[0.0], &[0.5], |x| if x[0] > 0.9 { f64::NAN } else { (x[0] - 0.75).powi(2) });
        assert!((holes[0] - 0.75).abs() < 1e-4);
    }
}
