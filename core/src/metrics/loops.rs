//! Responses that repeat themselves. A drafter predicts a loop almost perfectly, so looped text inflates τ (public fault
//! 50: 3.93 on random prompts against 1.94 on chat).

/// Shorter responses are not judged.
pub const LOOP_MIN: usize = 96;
/// How many of the last tokens are looked at.
pub const LOOP_WINDOW: usize = 64;
/// Longest period that counts as a loop: the window holds it twice.
pub const LOOP_PERIOD: usize = 32;

/// Whether a response ends in a loop: its last [`LOOP_WINDOW`] tokens have a period of at most [`LOOP_PERIOD`]. `None`
/// below [`LOOP_MIN`] tokens.
#[must_use]
pub fn looped(tokens: &[u32]) -> Option<bool> {
    if tokens.len() < LOOP_MIN {
        return None;
    }
    let tail = &tokens[tokens.len() - LOOP_WINDOW..];
    Some((1..=LOOP_PERIOD).any(|period| tail[period..] == tail[..LOOP_WINDOW - period]))
}

/// Share of the judged responses that end in a loop; `None` when none is long enough to be judged.
#[must_use]
pub fn loop_share<'a>(responses: impl IntoIterator<Item = &'a [u32]>) -> Option<f64> {
    let (mut loops, mut judged) = (0u32, 0u32);
    for found in responses.into_iter().filter_map(looped) {
        judged += 1;
        loops += u32::from(found);
    }
    (judged > 0).then(|| f64::from(loops) / f64::from(judged))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `len` tokens without a period, then `tail` tokens of period `period`.
    fn response(len: u32, tail: u32, period: u32) -> Vec<u32> {
        (0..len).chain((0..tail).map(|i| 1000 + i % period)).collect()
    }

    #[test]
    fn periods_up_to_32_over_64_tokens_are_loops() {
        for period in [1, 2, 7, 31, 32] {
            assert_eq!(looped(&response(40, 64, period)), Some(true), "{period}");
        }
        assert_eq!(looped(&response(40, 64, 33)), Some(false));
        // One token short of the window, and a period that breaks at the last token.
        assert_eq!(looped(&response(40, 63, 8)), Some(false));
        let mut broken = response(40, 64, 8);
        *broken.last_mut().unwrap() += 1;
        assert_eq!(looped(&broken), Some(false));
    }

    #[test]
    fn short_responses_are_not_judged() {
        assert_eq!(looped(&[5; 95]), None);
        assert_eq!(looped(&[5; 96]), Some(true));
        assert_eq!(loop_share([&[5u32; 95][..]]), None);
    }

    /// Public fault 50: random prompts loop; the share says so.
    #[test]
    fn fault_50_loop_share_tells_loops_from_text() {
        let (text, repeats) = (response(200, 0, 1), response(40, 64, 3));
        assert_eq!(loop_share([text.as_slice(), &repeats, &repeats, &[1, 2]]), Some(2.0 / 3.0));
        // Negative control: a detector that only knows period 1 misses it.
        let naive = |t: &[u32]| t[t.len() - LOOP_WINDOW..].windows(2).all(|w| w[0] == w[1]);
        assert!(!naive(&repeats));
    }
}
