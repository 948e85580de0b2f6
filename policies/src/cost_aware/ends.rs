//! Which totals of nodes are worth comparing.

/// Totals compared where steps are not bucketed; between neighbours Φ and cost differ by less than a percent.
const TOTALS: u32 = 192;

/// Node totals of a step of `requests` roots worth comparing, up to `most` nodes, ascending. `buckets` = ends of the
/// graph buckets in rows (Σ rows, ascending), empty where steps are not padded. Within a bucket more nodes cost the same
/// and are worth at least as much, so only its end counts; `most` is an end too. Without buckets: every total, or 192
/// evenly spaced ones.
pub fn totals(buckets: &[u32], requests: u32, most: u32, ends: &mut Vec<u32>) {
    ends.clear();
    if buckets.is_empty() {
        let stride = most.div_ceil(TOTALS).max(1);
        ends.extend((0..most).step_by(stride as usize));
    } else {
        let nodes = buckets.iter().filter_map(|&b| b.checked_sub(requests));
        ends.extend(nodes.take_while(|&n| n < most));
    }
    ends.push(most);
}

/// Nodes of one request worth comparing when all `requests` take as many, up to `most`, ascending; as [`totals`].
pub fn per_request(buckets: &[u32], requests: u32, most: u32, ends: &mut Vec<u32>) {
    ends.clear();
    if buckets.is_empty() {
        ends.extend(0..most);
    } else {
        let nodes = buckets.iter().filter_map(|&b| (b / requests.max(1)).checked_sub(1));
        ends.extend(nodes.take_while(|&n| n < most));
        ends.dedup();
    }
    ends.push(most);
}
