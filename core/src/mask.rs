//! The ancestor mask of a tree, bit-packed for any number of rows.

/// Row `i` has bit `j` set when row `i` may see row `j`: `j` is an ancestor of `i`, or `i` itself. Each row takes
/// [`AncestorMask::words`] words of 64 bits, so that no row count runs into the next row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AncestorMask {
    rows: usize,
    words: usize,
    bits: Vec<u64>,
}

impl AncestorMask {
    /// The mask of a tree given by its parents (root first, every parent before its children).
    #[must_use]
    pub fn of(parents: &[u32]) -> Self {
        let mut mask = Self::default();
        mask.rebuild(parents);
        mask
    }

    /// Rebuilds in place; the memory is reused and stale bits are cleared.
    pub fn rebuild(&mut self, parents: &[u32]) {
        self.rows = parents.len();
        self.words = self.rows.div_ceil(64);
        self.bits.clear();
        self.bits.resize(self.rows * self.words, 0);
        for (row, &parent) in parents.iter().enumerate() {
            let (above, own) = self.bits.split_at_mut(row * self.words);
            let own = &mut own[..self.words];
            if row > 0 {
                let parent = parent as usize;
                own.copy_from_slice(&above[parent * self.words..(parent + 1) * self.words]);
            }
            own[row / 64] |= 1 << (row % 64);
        }
    }

    /// Number of rows (and of columns).
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// 64-bit words per row.
    #[must_use]
    pub fn words(&self) -> usize {
        self.words
    }

    /// The words of one row, lowest column in the lowest bit.
    #[must_use]
    pub fn row(&self, row: usize) -> &[u64] {
        &self.bits[row * self.words..(row + 1) * self.words]
    }

    /// Whether `row` sees `column`.
    #[must_use]
    pub fn sees(&self, row: usize, column: usize) -> bool {
        column < self.rows && self.row(row)[column / 64] >> (column % 64) & 1 == 1
    }

    /// Columns that `row` sees, in ascending index = ascending depth.
    pub fn columns(&self, row: usize) -> impl Iterator<Item = usize> + '_ {
        self.row(row).iter().enumerate().flat_map(|(w, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                (left != 0).then(|| {
                    let bit = left.trailing_zeros() as usize;
                    left &= left - 1;
                    w * 64 + bit
                })
            })
        })
    }
}
