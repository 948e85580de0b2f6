//! Walks of the staged round, on the host: from chosen tokens, or from logits that the law asks for.

use crate::device::{Gpu, Ptr};
use std::cell::OnceCell;
use treeline_core::law::Walk;
use treeline_core::{Fault, ROOT, Rows, Tree};

/// A row whose logits have no usable maximum gives this in place of a token.
pub(crate) const UNUSABLE: u32 = u32::MAX;

/// Follows the chosen tokens of a tree's rows for as long as a child carries them.
///
/// # Errors
/// [`Fault::TargetLogits`] when the walk comes to a row that has no token.
pub(crate) fn descend(tree: &Tree, tokens: &[u32]) -> Result<Walk, Fault> {
    let (mut path, mut node) = (Vec::new(), ROOT);
    loop {
        let token = tokens[node as usize];
        if token == UNUSABLE {
            return Err(Fault::TargetLogits { row: node });
        }
        match tree.child(node, token) {
            Some(child) => {
                path.push(child);
                node = child;
            }
            None => return Ok(Walk { path, bonus: token }),
        }
    }
}

/// Logits of one tree, copied when the law asks for them: it visits a handful of rows, and one row of a large vocabulary is
/// half a megabyte.
pub(crate) struct DeviceRows<'a> {
    gpu: &'a Gpu,
    logits: Ptr,
    first: usize,
    width: usize,
    rows: Vec<OnceCell<Vec<f32>>>,
}

impl<'a> DeviceRows<'a> {
    /// Rows of `tree`, the first of which is row `first` of `logits`, f32 \[rows\]\[`width`\].
    pub fn new(gpu: &'a Gpu, logits: Ptr, first: usize, width: usize, tree: &Tree) -> Self {
        Self { gpu, logits, first, width, rows: (0..tree.rows()).map(|_| OnceCell::new()).collect() }
    }
}

impl Rows for DeviceRows<'_> {
    fn logits(&self, row: u32) -> &[f32] {
        self.rows[row as usize].get_or_init(|| {
            let at = self.logits.offset((self.first + row as usize) * self.width * size_of::<f32>());
            // A row that cannot be copied is as unusable as one of NaN.
            self.gpu.read(at, self.width).unwrap_or_else(|_| vec![f32::NAN; self.width])
        })
    }
}
