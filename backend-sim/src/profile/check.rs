//! Whether profiles belong together.

use super::{Attention, Deployment, Hardware, Model, ProfileError};

/// See [`Deployment::check`].
pub(super) fn deployment(d: &Deployment, hardware: &Hardware, model: &Model) -> Result<(), ProfileError> {
    if d.hardware != hardware.name {
        return Err(ProfileError::Mismatch {
            problem: format!("deployment {} is written for {}, not for {}", d.name, d.hardware, hardware.name),
            hint: format!("name hardware {}, or copy the deployment into a file of your own and change it", d.hardware),
        });
    }
    if d.ranks > hardware.nvlink_gpus {
        return Err(ProfileError::Mismatch {
            problem: format!(
                "deployment {} has {} ranks, but {} joins {} GPUs by NVLink",
                d.name, d.ranks, hardware.name, hardware.nvlink_gpus
            ),
            hint: "lower `ranks`: links between servers are not modelled".into(),
        });
    }
    let mut parts = vec![("attention heads", model.attention.heads()), ("vocabulary", model.vocab)];
    if let Attention::Gqa { kv_heads, .. } = model.attention
        && kv_heads > d.ranks
    {
        parts.push(("key heads", kv_heads));
    }
    if model.dense_layers > 0 {
        parts.push(("dense width", model.dense_intermediate));
    }
    if let Some(moe) = model.moe {
        parts.push(("expert width", moe.intermediate));
    }
    let odd = |ranks: u32| parts.iter().find(|(_, n)| !n.is_multiple_of(ranks));
    let Some((what, n)) = odd(d.ranks) else { return Ok(()) };
    let fit: Vec<String> = (1..=hardware.nvlink_gpus).filter(|r| odd(*r).is_none()).map(|r| r.to_string()).collect();
    Err(ProfileError::Mismatch {
        problem: format!(
            "`ranks` = {} of deployment {} does not divide the {what} of {}: {n}",
            d.ranks, d.name, model.name
        ),
        hint: format!("set `ranks` of the deployment to one of {}", fit.join(", ")),
    })
}
