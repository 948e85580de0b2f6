//! Colours of ratios around 1, and their key.

use maud::{Markup, html};

use crate::report::fmt;

/// Limits between the colours, in multiples.
pub(in crate::report) const EDGES: [f64; 10] = [0.5, 0.75, 0.9, 0.98, 1.02, 1.1, 1.25, 1.5, 2.0, 3.0];

/// The colour class of a ratio: 0 = far below 1, 4 = about 1, 10 = far above.
pub(in crate::report) fn shade(ratio: f64) -> usize {
    EDGES.iter().filter(|e| ratio >= **e).count()
}

/// A limit in the key: "0.5", "1.02", "2".
pub(in crate::report) fn edge(value: f64) -> String {
    let text = fmt::fixed(value, 2);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The key of a map: limits between swatches in multiples, the line, and what else its tiles show.
pub(in crate::report) fn heat_key(refused: bool, flags: bool) -> Markup {
    html! {
        p class="legend heat-key" {
            span class="ramp" {
                @for i in 0..=EDGES.len() { i class={ "step d" (i) } { @if let Some(e) = EDGES.get(i) { small { (edge(*e)) } } } }
            }
            span { "speed-up over plain decoding (×)" }
            span { i class="key line" {} "ceiling: the budget that pays most" }
            @if refused { span { i class="key hatched" {} "does not fit" } }
            @if flags { span { i class="key cornered" {} "outside the domain of its tables" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_lie_around_one() {
        assert_eq!([0.1, 0.97, 1.0, 1.03, 9.0].map(shade), [0, 3, 4, 5, 10]);
        assert_eq!(shade(1.0), EDGES.len() / 2 - 1);
        assert_eq!(EDGES[..4].iter().map(|e| edge(*e)).collect::<Vec<_>>(), ["0.5", "0.75", "0.9", "0.98"]);
    }
}
