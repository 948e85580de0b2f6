//! Numbers for people: few digits, no exponent where a reader does not need one, a dash for what is missing.

/// What stands for a missing value.
pub(super) const MISSING: &str = "–";

/// The value, unless it is absent or not finite.
pub(super) fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|v| v.is_finite())
}

/// `digits` decimals, or three significant digits in scientific form from a million on.
pub(super) fn fixed(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        MISSING.to_owned()
    } else if value.abs() >= 1e6 {
        scientific(value)
    } else if value.abs() >= 1e4 {
        grouped(value.round() as i64)
    } else {
        let text = format!("{value:.digits$}");
        // A tiny negative number would print as "-0.00".
        if text.starts_with('-') && text.trim_start_matches(['-', '0', '.']).is_empty() {
            text[1..].to_owned()
        } else {
            text.replace('-', "−")
        }
    }
}

/// About three significant digits.
pub(super) fn short(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !size.is_finite() => MISSING.to_owned(),
        _ if size == 0.0 => "0".to_owned(),
        _ if size >= 100.0 => fixed(value, 0),
        _ if size >= 10.0 => fixed(value, 1),
        _ if size >= 0.1 => fixed(value, 2),
        _ if size >= 0.001 => fixed(value, 4),
        _ => scientific(value),
    }
}

/// `1.23e9`, with a real minus sign.
fn scientific(value: f64) -> String {
    format!("{value:.2e}").replace('-', "−")
}

/// Thousands separated by commas.
pub(super) fn grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut out = if value < 0 { "−".to_owned() } else { String::new() };
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A count.
pub(super) fn count(value: u64) -> String {
    grouped(i64::try_from(value).unwrap_or(i64::MAX))
}

/// An optional value by `show`, or the dash.
pub(super) fn or_dash(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    finite(value).map_or_else(|| MISSING.to_owned(), show)
}

/// `lo–hi` with two decimals; `None` unless both ends are known.
pub(super) fn interval(lo: Option<f64>, hi: Option<f64>, digits: usize) -> Option<String> {
    Some(format!("{}–{}", fixed(finite(lo)?, digits), fixed(finite(hi)?, digits)))
}

/// A share as whole per cent, with one decimal below one per cent.
pub(super) fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value == 0.0 { "0 %".to_owned() } else { format!("{} %", fixed(value, usize::from(value.abs() < 1.0))) }
}

/// With its sign, zero included.
pub(super) fn signed(value: f64, digits: usize) -> String {
    let text = fixed(value, digits);
    if text.starts_with('−') { text } else { format!("+{text}") }
}

/// A temperature: as few digits as it needs.
pub(super) fn temperature(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `1 prompt`, `16 prompts`.
pub(super) fn plural(n: u64, one: &str) -> String {
    format!("{} {one}{}", count(n), if n == 1 { "" } else { "s" })
}

/// "a", "a and b", "a, b and c".
pub(super) fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

/// The text with per cent signs and intervals kept on one line.
pub(super) fn unbroken(text: &str) -> String {
    text.replace(" %", "\u{a0}%")
        .replace("T = ", "T\u{a0}=\u{a0}")
        .replace("τ ", "τ\u{a0}")
        .replace('–', "\u{2060}–\u{2060}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_a_reader_needs() {
        let shown: Vec<String> =
            [0.0, 1e-9, 0.0123, 0.5, 7.126, 42.31, 142.0, 1234.4, 73_123.9, 9.87e17, -0.3].map(short).into();
        let expected = ["0", "1.00e−9", "0.0123", "0.50", "7.13", "42.3", "142", "1234", "73,124", "9.87e17", "−0.30"];
        assert_eq!(shown, expected);
        assert_eq!([fixed(-0.001, 2), fixed(2.346, 2), fixed(f64::NAN, 2)], ["0.00", "2.35", "–"]);
        assert_eq!([signed(0.4, 2), signed(-0.4, 2), signed(0.0, 1)], ["+0.40", "−0.40", "+0.0"]);
        assert_eq!([percent(0.0), percent(0.004), percent(0.35)], ["0 %", "0.4 %", "35 %"]);
        assert_eq!([count(999), count(1_000), count(u64::MAX)], ["999", "1,000", "9,223,372,036,854,775,807"]);
        assert_eq!([temperature(0.0), temperature(0.7), temperature(1.0)], ["0", "0.7", "1"]);
        assert_eq!(interval(Some(1.0), None, 2), None);
    }

    #[test]
    fn lists_read_like_lists() {
        let items: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
        assert_eq!(
            [listed(&items), listed(&items[..2]), listed(&items[..1]), listed(&[])],
            ["a, b and c", "a and b", "a", ""]
        );
    }
}
