//! Which totals of nodes are worth comparing.

/// Totals compared where steps are not padded; between neighbours Φ and cost differ by less than a percent.
const TOTALS: u32 = 192;

/// Node totals of a step of `requests` roots worth comparing, up to `most` nodes, ascending. `buckets` = ends of the
/// graph buckets in rows (Σ rows, ascending), empty where steps are not padded to row counts.
///
/// Within a bucket more nodes cost the same and are worth at least as much, so only its end counts. Beyond the last bucket,
/// and without buckets: every total, or 192 evenly spaced ones and those that give all requests as many, which is where
/// graphs that count requests end. `most` is always an end.
pub fn totals(buckets: &[u32], requests: u32, most: u32, ends: &mut Vec<u32>) {
    ends.clear();
    ends.extend(buckets.iter().filter_map(|&b| b.checked_sub(requests)).take_while(|&n| n < most));
    let from = match buckets.last() {
        None => 0,
        Some(last) => last.saturating_sub(requests).max(ends.last().map_or(0, |e| e + 1)),
    };
    if from < most {
        let stride = (most - from).div_ceil(TOTALS).max(1);
        let mut next = from;
        while next < most {
            ends.push(next);
            let even = from + ((next - from) / stride + 1) * stride;
            let alike = (next / requests.max(1) + 1) * requests.max(1);
            next = if stride == 1 { even } else { even.min(alike) };
        }
    }
    ends.push(most);
}

/// Nodes of one request worth comparing when all `requests` take as many, up to `most`, ascending; as [`totals`].
pub fn per_request(buckets: &[u32], requests: u32, most: u32, ends: &mut Vec<u32>) {
    let requests = requests.max(1);
    ends.clear();
    ends.extend(buckets.iter().filter_map(|&b| (b / requests).checked_sub(1)).take_while(|&n| n < most));
    ends.dedup();
    let from = match buckets.last() {
        None => 0,
        Some(last) => (last / requests).saturating_sub(1).max(ends.last().map_or(0, |e| e + 1)),
    };
    if from < most {
        ends.extend((from..most).step_by((most - from).div_ceil(TOTALS).max(1) as usize));
    }
    ends.push(most);
}
