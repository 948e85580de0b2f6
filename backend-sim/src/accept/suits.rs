//! Whether a process is of the drafter that is priced.

use super::parameter::Drafts;
use super::process::{Process, ProcessError};
use crate::profile::{Drafter, DrafterKind};

impl Process {
    /// This process as `drafter` would show it: a block must be of as many levels; rates of a drafter that goes step by step
    /// are cut to the steps that are drafted, which is exact, because what comes behind a step does not change it.
    ///
    /// # Errors
    /// [`ProcessError::Drafter`] where one drafts blocks and the other steps, a block has another size, or more steps are
    /// drafted than have a rate; it says what to change.
    pub fn for_drafter(&self, drafter: &Drafter) -> Result<Self, ProcessError> {
        let (levels, drafts) = (self.depth(), drafter.depth());
        let refuse = |why: String, help: String| {
            Err(ProcessError::Drafter { process: self.name.clone(), drafter: drafter.name.clone(), why, help })
        };
        match (self.drafter, drafter.kind) {
            (Drafts::Block, DrafterKind::Dflash { .. }) if levels == drafts => Ok(self.clone()),
            (Drafts::Block, DrafterKind::Dflash { block }) => refuse(
                format!("its block has {levels} levels, the drafter's {drafts}"),
                format!(
                    "name a process of a block of {block}, or a drafter profile with `block` = {}: rates of one block say \
                     nothing about another",
                    levels + 1
                ),
            ),
            (Drafts::Block, DrafterKind::Eagle { .. }) => refuse(
                "it is of a drafter that proposes a block at once (`drafter = \"block\"`), this one goes step by step"
                    .into(),
                "name a drafter of kind \"dflash\", or a process with `drafter = \"steps\"`, such as \
                 kimi-k2.5-eagle3-thinking"
                    .into(),
            ),
            (Drafts::Steps, DrafterKind::Dflash { .. }) => refuse(
                "it is of a drafter that goes step by step (`drafter = \"steps\"`), this one proposes a block at once"
                    .into(),
                "name a drafter of kind \"eagle\", or a process with `drafter = \"block\"`, such as kimi-k2.6-dspark"
                    .into(),
            ),
            (Drafts::Steps, DrafterKind::Eagle { .. }) if levels < drafts => refuse(
                format!("it has rates of {levels} positions, the drafter takes {drafts} steps"),
                format!(
                    "lower `steps` to {levels} in a drafter profile of your own, or name a process that was counted deeper"
                ),
            ),
            (Drafts::Steps, DrafterKind::Eagle { .. }) => Ok(self.cut(drafts, &drafter.name)),
        }
    }

    /// The first `depth` levels.
    fn cut(&self, depth: u32, drafter: &str) -> Self {
        let (all, keep) = (self.depth(), depth as usize);
        let mut process = self.clone();
        if depth < all {
            process.conditional.values.truncate(keep);
            process.conditional.errors.truncate(keep);
            process.about =
                format!("the first {depth} of {all} positions, as many as {drafter} takes steps; {}", self.about);
        }
        process
    }
}
