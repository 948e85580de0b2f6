//! Independent rows, every expert as likely as any other.

/// Distinct experts that `rows` independent rows touch, each choosing `top_k` of `total` evenly:
/// U = E(1 − (1 − k/E)^T).
#[must_use]
pub fn distinct(total: u32, top_k: u32, rows: f64) -> f64 {
    let (e, k) = (f64::from(total), f64::from(top_k.min(total)));
    if k >= e {
        return if rows > 0.0 { e } else { 0.0 };
    }
    // exp(T·ln(1 − k/E)) by the functions that keep small differences.
    e * -(rows * (-k / e).ln_1p()).exp_m1()
}

/// The independent rows that would touch `distinct` experts; infinite from `total` on.
#[must_use]
pub fn rows_for(total: u32, top_k: u32, distinct: f64) -> f64 {
    let (e, k) = (f64::from(total), f64::from(top_k.min(total)));
    if distinct >= e {
        return f64::INFINITY;
    }
    (-distinct.max(0.0) / e).ln_1p() / (-k / e).ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_figures() {
        for (rows, u) in [(8.0, 60.0), (16.0, 110.0), (17.0, 116.0), (33.0, 192.0), (65.0, 286.0)] {
            assert_eq!(distinct(384, 8, rows).round(), u, "{rows} rows");
        }
    }

    #[test]
    fn the_inverse_leads_back() {
        for rows in [1.0, 2.5, 17.0, 300.0] {
            assert!((rows_for(384, 8, distinct(384, 8, rows)) / rows - 1.0).abs() < 1e-9);
        }
        assert_eq!(rows_for(4, 2, 4.0), f64::INFINITY);
        assert_eq!(distinct(4, 4, 3.0), 4.0);
    }
}
