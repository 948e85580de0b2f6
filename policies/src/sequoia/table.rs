//! Sequoia's dynamic programme.

use crate::shape::Shape;

/// The filled table of the dynamic programme.
#[derive(Debug)]
pub struct Table {
    /// Most rows and levels.
    rows: usize,
    levels: usize,
    pub(super) branches: usize,
    /// `T[m][l][b]`; −∞ where exactly m nodes do not fit. Index ((l · rows) + m − 1) · (branches + 1) + b.
    value: Vec<f64>,
    /// The maximising y of the same entry.
    split: Vec<u32>,
    /// max over b of `T[m][l][b]` and its b, by l · rows + m − 1.
    best: Vec<(f64, u32)>,
}

impl Table {
    /// The table for trees of up to `budget` nodes (root not counted) and `depth` levels. `p` is acceptance by rank.
    #[must_use]
    pub fn new(p: &[f64], budget: u32, depth: u32) -> Self {
        // Without levels there is the root alone.
        let (rows, branches) = (if depth == 0 { 1 } else { budget as usize + 1 }, p.len());
        let levels = depth.min(budget) as usize + 1;
        let entries = rows * levels * (branches + 1);
        let mut t = Self {
            rows,
            levels,
            branches,
            value: vec![f64::NEG_INFINITY; entries],
            split: vec![0; entries],
            best: vec![(f64::NEG_INFINITY, 0); rows * levels],
        };
        for l in 0..levels {
            let leaf = t.at(1, l, 0);
            t.value[leaf] = 1.0;
            t.best[l * rows] = (1.0, 0);
            if l == 0 {
                continue;
            }
            for (b, &p) in (1..).zip(p) {
                for m in 2..=rows {
                    let mut best = (f64::NEG_INFINITY, 0);
                    for y in 1..m {
                        let value = t.value[t.at(y, l, b - 1)] + p * t.best[(l - 1) * rows + m - y - 1].0;
                        if value > best.0 {
                            best = (value, y as u32);
                        }
                    }
                    let entry = t.at(m, l, b);
                    (t.value[entry], t.split[entry]) = best;
                    let top = &mut t.best[l * rows + m - 1];
                    if best.0 > top.0 {
                        *top = (best.0, b as u32);
                    }
                }
            }
        }
        t
    }

    fn at(&self, m: usize, l: usize, b: usize) -> usize {
        ((l * self.rows) + m - 1) * (self.branches + 1) + b
    }

    /// Expected tokens per step, bonus included, of the best tree of at most `budget` nodes and `depth` levels; and its
    /// size with the root.
    #[must_use]
    pub fn best(&self, budget: u32, depth: u32) -> (f64, u32) {
        let l = (depth as usize).min(self.levels - 1);
        let sizes = 1..=(budget as usize + 1).min(self.rows);
        let mut best = (f64::NEG_INFINITY, 1);
        for m in sizes {
            let value = self.best[l * self.rows + m - 1].0;
            if value > best.0 {
                best = (value, m as u32);
            }
        }
        best
    }

    /// The best tree, level by level.
    #[must_use]
    pub fn shape(&self, budget: u32, depth: u32) -> Shape {
        let mut shape = Shape::default();
        let l = (depth as usize).min(self.levels - 1);
        // Breadth first: nodes whose children are still to be added, with the size of their subtree and its levels.
        let mut queue = std::collections::VecDeque::from([(0, self.best(budget, depth).1 as usize, l)]);
        while let Some((node, mut m, l)) = queue.pop_front() {
            let branches = self.best[l * self.rows + m - 1].1 as usize;
            let first = shape.rows();
            (0..branches as u32).for_each(|rank| {
                shape.push(node, rank);
            });
            let begin = queue.len();
            for b in (1..=branches).rev() {
                let y = self.split[self.at(m, l, b)] as usize;
                queue.insert(begin, (first + b as u32 - 1, m - y, l - 1));
                m = y;
            }
        }
        shape
    }
}
