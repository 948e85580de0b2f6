//! Two halves of the requests.

/// Indices of half A and half B of `requests` requests: every second one, so that halves of a recording that goes domain by
/// domain hold the same mixture.
#[must_use]
pub fn halves(requests: usize) -> [Vec<u32>; 2] {
    let of = |first: u32| (first..requests as u32).step_by(2).collect();
    [of(0), of(1)]
}
