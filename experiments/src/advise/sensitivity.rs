//! Which input the decisions hang on.

use super::types::Sensitivity;
use crate::decide::{Effect, TIE};

/// What every input does over all settings, the one with the greatest mean loss first, then the one that moves the gain
/// most. `settings` holds each setting's speed-up of the choice and its effects.
#[must_use]
pub fn sensitivities(settings: &[(f64, Vec<Effect<'_>>)]) -> Vec<Sensitivity> {
    let mut out: Vec<Sensitivity> = Vec::new();
    for (speedup, effects) in settings {
        let mut keys: Vec<&str> = Vec::new();
        for e in effects {
            let key = e.variant.key.as_str();
            if keys.contains(&key) {
                continue;
            }
            keys.push(key);
            let ways = || effects.iter().filter(|o| o.variant.key == key);
            let loss = ways().map(|o| o.loss).fold(0.0, f64::max);
            let moved = |o: &Effect<'_>| o.speedup.filter(|s| s.is_finite()).map(|s| (s / speedup - 1.0).abs());
            let swing = ways().filter_map(moved).fold(0.0, f64::max);
            let at = out.iter().position(|s| s.key == key).unwrap_or_else(|| {
                out.push(Sensitivity {
                    key: key.to_owned(),
                    input: e.variant.input.clone(),
                    changes: Vec::new(),
                    flips: 0,
                    settings: 0,
                    loss_mean: 0.0,
                    loss_max: 0.0,
                    swing: 0.0,
                });
                out.len() - 1
            });
            let s = &mut out[at];
            for way in ways() {
                if !s.changes.contains(&way.variant.change) {
                    s.changes.push(way.variant.change.clone());
                }
            }
            s.flips += u32::from(loss >= TIE);
            s.settings += 1;
            s.loss_mean += loss;
            s.loss_max = s.loss_max.max(loss);
            s.swing += swing;
        }
    }
    for s in &mut out {
        let n = f64::from(s.settings.max(1));
        s.loss_mean /= n;
        s.swing /= n;
    }
    out.sort_by(|a, b| {
        b.loss_mean.total_cmp(&a.loss_mean).then(b.swing.total_cmp(&a.swing)).then_with(|| a.key.cmp(&b.key))
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{Part, Variant};

    fn variant(key: &str, change: &str) -> Variant {
        Variant {
            key: key.to_owned(),
            input: format!("time of {key}"),
            change: change.to_owned(),
            part: Part::Transfer,
            rates: Vec::new(),
        }
    }

    #[test]
    fn the_input_with_the_greatest_loss_comes_first() {
        let variants = [variant("moe", "+10 %"), variant("moe", "-10 %"), variant("host", "+50 %")];
        let effect = |v: usize, loss, speedup| Effect { variant: &variants[v], best: 0, loss, speedup: Some(speedup) };
        let settings = [
            (2.0, vec![effect(0, 0.0, 1.9), effect(1, 0.02, 2.1), effect(2, 0.004, 1.0)]),
            (2.0, vec![effect(0, 0.04, 2.0), effect(1, 0.0, 2.0), effect(2, 0.0, 1.0)]),
        ];
        let s = sensitivities(&settings);
        assert_eq!(s.iter().map(|s| s.key.as_str()).collect::<Vec<_>>(), ["moe", "host"]);
        assert!((s[0].loss_mean - 0.03).abs() < 1e-12 && (s[0].loss_max - 0.04).abs() < 1e-12);
        assert_eq!((s[0].flips, s[0].settings, s[0].changes.len()), (2, 2, 2));
        assert!((s[0].swing - 0.025).abs() < 1e-12);
        // It moves the gain by half and no decision by more than a tie.
        assert!((s[1].swing - 0.5).abs() < 1e-12 && s[1].flips == 0);
    }
}
