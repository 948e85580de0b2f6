//! Whether a trace belongs to the models that are priced.

use super::BatchError;
use crate::profile::{Drafter, DrafterKind, Model};
use treeline_core::trace::TraceMeta;

/// Checks, before a run, that a trace was recorded with a drafter of this shape for a model of this vocabulary: acceptance of
/// one pair priced as another would be an invented number.
///
/// # Errors
/// [`BatchError::OtherModel`] names what differs and what to change.
pub fn check_trace(meta: &TraceMeta, model: &Model, drafter: &Drafter) -> Result<(), BatchError> {
    if meta.vocab != model.vocab {
        let what = format!("it was recorded with a vocabulary of {}, {} has {}", meta.vocab, model.name, model.vocab);
        return Err(BatchError::OtherModel {
            what,
            help: "name the target that the trace was recorded with, record one with this target, or say `stand_in = true`",
        });
    }
    check_stand_in(meta, drafter)
}

/// The same for a trace of other models that stands in for those that are priced: their words may differ, the shape of their
/// drafts may not.
///
/// # Errors
/// [`BatchError::OtherModel`], as [`check_trace`].
pub fn check_stand_in(meta: &TraceMeta, drafter: &Drafter) -> Result<(), BatchError> {
    let refuse = |what: String, help| Err(BatchError::OtherModel { what, help });
    let conditional = matches!(drafter.kind, DrafterKind::Eagle { .. });
    if meta.conditional != conditional {
        let kind = |conditional| if conditional { "a conditional drafter" } else { "a block drafter" };
        let what = format!("it is of {}, {} is {}", kind(meta.conditional), drafter.name, kind(conditional));
        return refuse(what, "name the drafter that the trace was recorded with");
    }
    if meta.depth != drafter.depth() {
        let what = format!("it holds {} levels, {} drafts {}", meta.depth, drafter.name, drafter.depth());
        return refuse(what, "name the drafter that the trace was recorded with: another block is another drafter");
    }
    Ok(())
}
