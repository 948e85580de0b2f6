//! `qwen3`, `qwen3_moe` and `llama`.

use serde_json::{Value, json};

use super::common::{common, layer_count};
use super::rope::AmplitudeRule;
use super::{Attention, Family, Ffn, Gqa, Layer, Moe, Router, TargetConfig, eos, quant, rope};
use crate::error::Result;
use crate::json::Fields;

/// Reads a model of `family` from the whole file.
pub(super) fn read(fields: Fields<'_>, family: Family) -> Result<TargetConfig> {
    fields.ignore(&["model_type"]);
    common(
        &fields,
        match family {
            Family::Qwen3 => &["Qwen3ForCausalLM"],
            Family::Qwen3Moe => &["Qwen3MoeForCausalLM"],
            _ => &["LlamaForCausalLM"],
        },
    )?;
    let (hidden, vocab) = (fields.size("hidden_size")?, fields.size("vocab_size")?);
    let attention = attention(&fields, family, hidden)?;
    let rope = rope::read(&fields, attention.head_dim, false, AmplitudeRule::Target)?;
    let count = layer_count(&fields)?;
    let windows = windows(&fields, family, count)?;
    let ffns = ffns(&fields, family, count)?;
    let config = TargetConfig {
        path: fields.path().to_owned(),
        family,
        hidden,
        vocab,
        layers: ffns.into_iter().zip(windows).map(|(ffn, window)| Layer { ffn, window }).collect(),
        attention: Attention::Gqa(attention),
        rope,
        rms_eps: fields.positive("rms_norm_eps")?,
        tied: fields.opt_bool("tie_word_embeddings")?.unwrap_or(false),
        max_positions: fields.size("max_position_embeddings")?,
        bos: eos::bos(&fields)?,
        eos: eos::read(&fields, vocab)?,
        mtp_layers: 0,
        quantization: quant::read(&fields, family.tensor_prefix())?,
    };
    fields.finish()?;
    Ok(config)
}

/// Heads of a Qwen3, Llama or DFlash attention.
pub(super) fn attention(fields: &Fields<'_>, family: Family, hidden: usize) -> Result<Gqa> {
    let heads = fields.size("num_attention_heads")?;
    let kv_heads = match (fields.opt_size("num_key_value_heads")?, family) {
        (Some(n), _) => n,
        // Llama 1 and 2 write no such field.
        (None, Family::Llama) => heads,
        (None, _) => fields.size("num_key_value_heads")?,
    };
    if !heads.is_multiple_of(kv_heads) {
        let problem = format!("{heads} query heads cannot share {kv_heads} key heads evenly");
        return Err(fields.error("num_key_value_heads", problem));
    }
    let head_dim = match (fields.opt_size("head_dim")?, family) {
        (Some(n), _) => n,
        // Qwen3's class has a default that fits no width; the others divide.
        (None, Family::Qwen3) => fields.size("head_dim")?,
        (None, _) if hidden.is_multiple_of(heads) => hidden / heads,
        (None, _) => {
            return Err(fields.error("head_dim", format!("missing, and {hidden} is no multiple of {heads} heads")));
        }
    };
    let bias = fields.opt_bool("attention_bias")?.unwrap_or(false);
    Ok(Gqa { heads, kv_heads, head_dim, qk_norm: family != Family::Llama, bias })
}

/// Sliding window of each layer. `layer_types` decides; without it the layers from `max_window_layers` on slide.
pub(super) fn windows(fields: &Fields<'_>, family: Family, count: usize) -> Result<Vec<Option<usize>>> {
    if family == Family::Llama {
        fields.only("sliding_window", &Value::Null, "llama has no sliding window")?;
        return Ok(vec![None; count]);
    }
    let enabled = fields.opt_bool("use_sliding_window")?;
    let size = fields.opt_size("sliding_window")?;
    let from = fields.opt_count("max_window_layers")?;
    let types = fields.opt_strings("layer_types")?;
    if family == Family::Qwen3Moe && enabled == Some(true) {
        return Err(fields.error("use_sliding_window", "is true, which is not supported for qwen3_moe"));
    }
    let sliding: Vec<bool> = match types {
        Some(types) => {
            if types.len() != count {
                return Err(fields.error("layer_types", format!("has {} entries for {count} layers", types.len())));
            }
            let slides = |kind: &&str| match *kind {
                "full_attention" => Ok(false),
                "sliding_attention" => Ok(true),
                other => {
                    let problem = format!("\"{other}\" is not supported; full_attention and sliding_attention are");
                    Err(fields.error("layer_types", problem))
                }
            };
            types.iter().map(slides).collect::<Result<_>>()?
        }
        None if enabled == Some(true) => match from {
            Some(from) => (0..count).map(|i| i >= from).collect(),
            None => return Err(fields.error("layer_types", "missing: it says which layers use the sliding window")),
        },
        None => vec![false; count],
    };
    if !sliding.contains(&true) {
        return Ok(vec![None; count]);
    }
    if enabled == Some(false) {
        return Err(fields.error("use_sliding_window", "is false, but `layer_types` has sliding layers"));
    }
    let Some(size) = size else {
        return Err(fields.error("sliding_window", "missing: some layers use a sliding window"));
    };
    Ok(sliding.into_iter().map(|s| s.then_some(size)).collect())
}

fn ffns(fields: &Fields<'_>, family: Family, count: usize) -> Result<Vec<Ffn>> {
    let dense = Ffn::Dense { intermediate: fields.size("intermediate_size")? };
    if family == Family::Llama {
        fields.only("mlp_bias", &json!(false), "the feed-forward part is built without biases")?;
    }
    if family != Family::Qwen3Moe {
        return Ok(vec![dense; count]);
    }
    let only_dense = fields.opt_ids("mlp_only_layers")?.unwrap_or_default();
    if let Some(layer) = only_dense.iter().find(|l| **l as usize >= count) {
        return Err(fields.error("mlp_only_layers", format!("names layer {layer}, but there are {count}")));
    }
    let step = fields.opt_size("decoder_sparse_step")?.unwrap_or(1);
    let moe = Ffn::Moe(moe(fields)?);
    let is_moe = |i: usize| !only_dense.contains(&(i as u32)) && (i + 1).is_multiple_of(step);
    Ok((0..count).map(|i| if is_moe(i) { moe.clone() } else { dense.clone() }).collect())
}

fn moe(fields: &Fields<'_>) -> Result<Moe> {
    // transformers 5 writes the new name, earlier ones `num_experts`.
    let (old, new) = (fields.opt_size("num_experts")?, fields.opt_size("num_local_experts")?);
    let experts = match (old, new) {
        (Some(a), Some(b)) if a != b => {
            return Err(fields.error("num_experts", format!("is {a}, but `num_local_experts` is {b}")));
        }
        (a, b) => match a.or(b) {
            Some(n) => n,
            None => fields.size("num_experts")?,
        },
    };
    let top_k = fields.size("num_experts_per_tok")?;
    if top_k > experts {
        return Err(fields.error("num_experts_per_tok", format!("is {top_k}, but there are {experts} experts")));
    }
    Ok(Moe {
        experts,
        top_k,
        intermediate: fields.size("moe_intermediate_size")?,
        shared: 0,
        router: Router::Softmax { norm_topk: fields.bool("norm_topk_prob")? },
    })
}
