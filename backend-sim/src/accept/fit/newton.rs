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
        let mut slope = [0.0; N];
        for i in 0..N {
            let (up, down) = (shifted(&[(i, step)]), shifted(&[(i, -step)]));
            slope[i] = (up - down) / (2.0 * step);
            curvature[i][i] = (up - 2.0 * best + down) / (step * step);
        }
        for i in 0..N {
            for j in 0..i {
                let mixed = shifted(&[(i, step), (j, step)])
                    - shifted(&[(i, step), (j, -step)])
                    - shifted(&[(i, -step), (j, step)])
                    + shifted(&[(i, -step), (j, -step)]);
                curvature[i][j] = mixed / (4.0 * step * step);
                curvature[j][i] = curvature[i][j];
            }
        }
        let mut moved = false;
        // Towards steepest ascent where the surface is not concave.
        for damping in [0.0, 1.0, 10.0, 100.0, 1e3, 1e5] {
            let mut system = curvature;
            let scale = (0..N).map(|i| curvature[i][i].abs()).fold(1e-6, f64::max);
            (0..N).for_each(|i| system[i][i] -= damping * 0.1 * scale);
            let Some(inverse) = invert(system) else { continue };
            let mut next = at;
            for i in 0..N {
                next[i] -= (0..N).map(|j| inverse[i][j] * slope[j]).sum::<f64>().clamp(-2.0, 2.0);
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
    (0..N).for_each(|i| b[i][i] = 1.0);
    for column in 0..N {
        let pivot = (column..N).max_by(|&i, &j| a[i][column].abs().total_cmp(&a[j][column].abs()))?;
        if a[pivot][column].abs() < 1e-12 {
            return None;
        }
        a.swap(column, pivot);
        b.swap(column, pivot);
        let scale = a[column][column];
        for k in 0..N {
            a[column][k] /= scale;
            b[column][k] /= scale;
        }
        for row in 0..N {
            let factor = a[row][column];
            if row != column && factor != 0.0 {
                for k in 0..N {
                    a[row][k] -= factor * a[column][k];
                    b[row][k] -= factor * b[column][k];
                }
            }
        }
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
