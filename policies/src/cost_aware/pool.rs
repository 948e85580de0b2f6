//! The nodes of a whole batch in one order: how much Φ each total of nodes is worth, and which requests get them.
//!
//! Every request's best-first nodes come in descending probability, so the globally best `n` nodes are a prefix of every
//! request's list: one heap over all requests, without the heap. A counting sort by the leading bits of the probability
//! leaves only the groups that an end falls into to be sorted.

/// Mantissa bits per group: probabilities of one group differ by less than 1/32.
const MANTISSA: u32 = 5;
/// Probabilities below 2⁻⁴⁰ share the last group.
const GROUPS: usize = 41 << MANTISSA;
/// Bits of 1.0 over the group's shift.
const TOP: u32 = 1f32.to_bits() >> (23 - MANTISSA);

/// The nodes of a batch. Working memory is reused.
#[derive(Debug, Default)]
pub struct Pool {
    /// Probabilities, request after request.
    values: Vec<f32>,
    /// Where each request's end.
    ends: Vec<u32>,
    /// Sort keys, grouped after [`Pool::group`]: the probability's bits inverted, then the place of insertion.
    keys: Vec<u64>,
    /// Per group where it begins in `keys`, what it sums to, whether it is sorted.
    groups: Vec<Group>,
    grouped: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Group {
    begin: u32,
    end: u32,
    sum: f64,
    sorted: bool,
}

impl Pool {
    /// Forgets the last step.
    pub fn clear(&mut self) {
        self.values.clear();
        self.ends.clear();
        self.grouped = false;
    }

    /// Adds the next request with the probabilities of its nodes in their order, descending. A value that rises above the
    /// one before it is taken as that one, NaN as 0, so that a request's nodes always stand in their own order.
    pub fn push(&mut self, probabilities: impl IntoIterator<Item = f32>) {
        let mut above = 1.0f32;
        self.values.extend(probabilities.into_iter().map(|p| {
            above = if p.is_nan() { 0.0 } else { p.clamp(0.0, above) };
            above
        }));
        self.ends.push(self.values.len() as u32);
        self.grouped = false;
    }

    /// Nodes of all requests.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.values.len() as u32
    }

    /// Φ of the best `ends[i]` nodes into `phi[i]`; `ends` ascending. Totals beyond the pool give all of it.
    pub fn phi(&mut self, ends: &[u32], phi: &mut [f64]) {
        self.group();
        let (mut group, mut before) = (0, 0.0);
        for (&end, phi) in ends.iter().zip(phi) {
            let end = end.min(self.nodes());
            while group < GROUPS && self.groups[group].end <= end {
                before += self.groups[group].sum;
                group += 1;
            }
            *phi = before;
            if group < GROUPS && self.groups[group].begin < end {
                let begin = self.groups[group].begin as usize;
                let part = &self.sorted(group)[..end as usize - begin];
                *phi += part.iter().map(|&key| f64::from(value(key))).sum::<f64>();
            }
        }
    }

    /// How many of its first nodes each request keeps when the batch keeps its best `total`: one entry a request.
    pub fn counts(&mut self, total: u32, counts: &mut Vec<u32>) {
        self.group();
        counts.clear();
        if total >= self.nodes() {
            let mut begin = 0;
            counts.extend(self.ends.iter().map(|&end| end - std::mem::replace(&mut begin, end)));
            return;
        }
        let group = self.groups.partition_point(|g| g.end <= total);
        let begin = self.groups[group].begin as usize;
        // The first node that is left out.
        let out = self.sorted(group)[total as usize - begin];
        let mut begin = 0;
        for &end in &self.ends {
            let list = &self.values[begin as usize..end as usize];
            let (bits, place) = ((out >> 32) as u32, out as u32);
            let (mut lo, mut hi) = (0, list.len() as u32);
            while lo < hi {
                let mid = (lo + hi) / 2;
                if (!list[mid as usize].to_bits(), begin + mid) < (bits, place) { lo = mid + 1 } else { hi = mid }
            }
            counts.push(lo);
            begin = end;
        }
    }

    fn group(&mut self) {
        if std::mem::replace(&mut self.grouped, true) {
            return;
        }
        self.groups.clear();
        self.groups.resize(GROUPS, Group::default());
        for &p in &self.values {
            let group = &mut self.groups[group_of(p)];
            group.end += 1;
            group.sum += f64::from(p);
        }
        let mut begin = 0;
        for group in &mut self.groups {
            let count = std::mem::replace(&mut group.end, begin);
            group.begin = begin;
            begin += count;
        }
        self.keys.resize(self.values.len(), 0);
        for (place, &p) in (0u32..).zip(&self.values) {
            let group = &mut self.groups[group_of(p)];
            self.keys[group.end as usize] = u64::from(!p.to_bits()) << 32 | u64::from(place);
            group.end += 1;
        }
    }

    /// The keys of a group, best first; ties to the earlier request.
    fn sorted(&mut self, group: usize) -> &[u64] {
        let group = &mut self.groups[group];
        let keys = &mut self.keys[group.begin as usize..group.end as usize];
        if !std::mem::replace(&mut group.sorted, true) {
            keys.sort_unstable();
        }
        keys
    }
}

fn group_of(p: f32) -> usize {
    (TOP.saturating_sub(p.to_bits() >> (23 - MANTISSA)) as usize).min(GROUPS - 1)
}

fn value(key: u64) -> f32 {
    f32::from_bits(!((key >> 32) as u32))
}
