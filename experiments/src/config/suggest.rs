//! "Did you mean": the nearest of a few known words.

/// The candidate nearest to `word`, if it is near enough to be a slip of the keyboard.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |s: &str| s.to_ascii_lowercase().replace('_', "-");
    let word = plain(word);
    // A key of a thousand letters is no slip, and its distance would cost a million steps.
    if word.len() > 64 {
        return None;
    }
    candidates
        .into_iter()
        .map(|c| (distance(&word, &plain(c)), c))
        .filter(|(d, c)| *d <= (c.len().max(word.len()) / 3).max(1) && *d < c.len())
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from `a` to `b` (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut two_up = vec![0; b.len() + 1];
    let mut up: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = up[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(up[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(two_up[j - 2] + 1);
            }
        }
        two_up = std::mem::replace(&mut up, row);
    }
    up[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let known = ["budget", "kind", "best-first", "spine-first", "temperature"];
        let check = |word: &str, expect: Option<&str>| assert_eq!(nearest(word, known), expect, "{word}");
        check("budgte", Some("budget"));
        check("buget", Some("budget"));
        check("knid", Some("kind"));
        check("best_first", Some("best-first"));
        check("Best-First", Some("best-first"));
        check("temperatur", Some("temperature"));
        check("colour", None);
        check("", None);
        check(&"b".repeat(10_000), None);
    }

    #[test]
    fn a_swap_counts_once() {
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
