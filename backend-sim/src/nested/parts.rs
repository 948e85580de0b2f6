//! Tables of a trace that was never whole.

use super::{Nested, NestedError};
use crate::TraceFault;

impl Nested {
    /// Puts the tables of further requests of the same trace behind these: what is left is what the whole trace would have
    /// given, in this order.
    ///
    /// # Errors
    /// Tables of other nodes, spine, levels or ranks; a request that is here already; more nodes than tables hold. Nothing
    /// is changed then.
    pub fn append(&mut self, part: &Self) -> Result<(), NestedError> {
        let shape = |n: &Self| (n.max_nodes, n.spine, n.depth, n.width);
        if shape(self) != shape(part) {
            return Err(NestedError::Parts { here: shape(self), there: shape(part) });
        }
        if let Some(&request) = part.ids.iter().find(|id| self.ids.contains(id)) {
            return Err(TraceFault::Request { request, why: "its id occurs twice".into() }.into());
        }
        let (positions, nodes) = (self.ends.len() as u32, self.weights.len() as u64);
        Self::check_nodes(nodes + part.weights.len() as u64)?;
        self.ids.extend(&part.ids);
        self.prompts.extend(&part.prompts);
        self.starts.extend(part.starts[1..].iter().map(|s| s + positions));
        self.ends.extend(part.ends.iter().map(|e| e + nodes as u32));
        self.weights.extend(&part.weights);
        self.places.extend(&part.places);
        self.rises.extend(&part.rises);
        self.certain.extend(&part.certain);
        self.chains.extend(&part.chains);
        self.levels.extend(&part.levels);
        self.behind.extend(&part.behind);
        Ok(())
    }
}
