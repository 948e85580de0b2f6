//! The greatest likelihood of a few parameters.

use super::Estimate;

/// Maximises `f` from `start`, parameters kept within `bounds`, by damped Newton steps on difference quotients; standard
/// errors from the curvature.
pub(super) fn maximise<const N: usize>(
    mut at: [f64; N],
    bounds: [(f64, f64); N],
    step: f64,
    f: impl Fn(&[f64; N]) -> f64,
) -> [Estimate; N] {
    let clamp = |x: &mut [f64; N]| x.iter_mut().zip(bounds).for_each(|(v, (low, high))| *v = v.clamp(low, high));
    let mut best = f(&at);
    let mut curvature = [[0.0; N]; N];
    for _ in 0..30 {
        let shifted = |moves: &[(usize, f64)]| {
            let mut x = at;
            moves.iter().for_each(|&(i, by)| x[i] += by);
            f(&x)
        };
        let slope: [f64; N] = std::array::from_fn(|i| (shifted(&[(i, step)]) - shifted(&[(i, -step)])) / (2.0 * step));
        curvature = std::array::from_fn(|i| {
            std::array::from_fn(|j| {
                let at = |a: f64, b: f64| shifted(&[(i, a), (j, b)]);
                if i == j {
                    (shifted(&[(i, step)]) - 2.0 * best + shifted(&[(i, -step)])) / (step * step)
                } else {
                    (at(step, step) - at(step, -step) - at(-step, step) + at(-step, -step)) / (4.0 * step * step)
                }
            })
        });
        let mut moved = false;
        // Towards steepest ascent where the surface is not concave.
        for damping in [0.0, 1.0, 10.0, 100.0, 1e3, 1e5] {
            let mut system = curvature;
            let scale = curvature.iter().enumerate().map(|(i, row)| row[i].abs()).fold(1e-6, f64::max);
            system.iter_mut().enumerate().for_each(|(i, row)| row[i] -= damping * 0.1 * scale);
            let Some(inverse) = invert(system) else { continue };
            let mut next = at;
            for (x, row) in next.iter_mut().zip(&inverse) {
                *x -= row.iter().zip(&slope).map(|(a, b)| a * b).sum::<f64>().clamp(-2.0, 2.0);
            }
            clamp(&mut next);
            let value = f(&next);
            if value > best + 1e-9 {
                moved = value > best + 1e-5;
                (at, best) = (next, value);
                break;
            }
        }
        if !moved {
            break;
        }
    }
    let variance = invert(curvature);
    std::array::from_fn(|i| {
        // A parameter at its bound, or one that the data do not move: its range is the bounds'.
        let own = variance.map(|v| -v[i][i]).filter(|v| *v > 0.0 && v.is_finite());
        Estimate { value: at[i], error: own.map_or((bounds[i].1 - bounds[i].0) / 4.0, f64::sqrt) }
    })
}

/// The inverse by elimination with pivots; `None` when singular.
fn invert<const N: usize>(mut a: [[f64; N]; N]) -> Option<[[f64; N]; N]> {
    let mut b = [[0.0; N]; N];
    b.iter_mut().enumerate().for_each(|(i, row)| row[i] = 1.0);
    for column in 0..N {
        let pivot = (column..N).max_by(|&i, &j| a[i][column].abs().total_cmp(&a[j][column].abs()))?;
        if a[pivot][column].abs() < 1e-12 {
            return None;
        }
        a.swap(column, pivot);
        b.swap(column, pivot);
        let scale = a[column][column];
        let (top, unit) = (a[column].map(|x| x / scale), b[column].map(|x| x / scale));
        for row in 0..N {
            let factor = if row == column { 0.0 } else { a[row][column] };
            a[row].iter_mut().zip(&top).for_each(|(x, t)| *x -= factor * t);
            b[row].iter_mut().zip(&unit).for_each(|(x, u)| *x -= factor * u);
        }
        (a[column], b[column]) = (top, unit);
    }
    Some(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_top_of_a_tilted_bowl() {
        let top =
            |x: &[f64; 2]| -((x[0] - 1.0).powi(2) + 2.0 * (x[1] + 0.5).powi(2) + (x[0] - 1.0) * (x[1] + 0.5)) / 0.02;
        let [a, b] = maximise([0.0, 0.0], [(-9.0, 9.0); 2], 1e-3, top);
        assert!((a.value - 1.0).abs() < 1e-4 && (b.value + 0.5).abs() < 1e-4, "{a:?} {b:?}");
        // The inverse of the curvature [[100, 50], [50, 200]].
        assert!((a.error - (200.0f64 / 17500.0).sqrt()).abs() < 1e-4, "{a:?}");
    }
}
