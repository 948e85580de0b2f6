//! `deepseek_v3` and `kimi_k2`, plain or nested under the `text_config` of `kimi_k25`.

use serde_json::{Value, json};

use super::common::{self, common, layer_count};
use super::rope::AmplitudeRule;
use super::{Attention, Family, Ffn, Layer, Mla, Moe, Router, TargetConfig, eos, quant, rope};
use crate::error::Result;
use crate::json::Fields;

/// Fields of DeepSeek-V3 that only training or a serving stack reads.
const IGNORED: &[&str] = &["aux_loss_alpha", "ep_size", "max_length", "seq_aux"];

/// Fields of `kimi_k25` beside `text_config`: the vision tower and its prompts, and what the text model repeats.
const VISION: &[&str] = &[
    "bos_token_id",
    "eos_token_id",
    "ignore_index",
    "image_token_id",
    "media_placeholder_token_id",
    "projector_hidden_act",
    "unpad_outputs",
    "use_unified_vision_chunk",
    "video_placeholder",
    "vision_config",
];

/// K2.5 and K2.6: the text model under `text_config`.
pub(super) fn read_nested(outer: Fields<'_>) -> Result<TargetConfig> {
    let Some(text) = outer.object("text_config")? else {
        return Err(outer.error("text_config", "missing: kimi_k25 keeps its text model there"));
    };
    outer.ignore(VISION);
    outer.ignore(common::IGNORED);
    outer.ignore(common::BASE_CLASS);
    outer.only("architectures", &json!(["KimiK25ForConditionalGeneration"]), "it is the class of kimi_k25")?;
    outer.only("is_encoder_decoder", &json!(false), "a decoder is built")?;
    let (inner, name) = (text.get("model_type"), text.name("model_type"));
    if !inner.and_then(Value::as_str).is_some_and(|t| t == "kimi_k2" || t == "deepseek_v3") {
        return Err(outer.error(&name, "must be \"kimi_k2\" or \"deepseek_v3\""));
    }
    // transformers reads the tie from the outer object; both say the same or the head is ambiguous.
    let outer_tie = outer.opt_bool("tie_word_embeddings")?;
    let inner_tie = text.opt_bool("tie_word_embeddings")?;
    if let (Some(a), Some(b)) = (outer_tie, inner_tie)
        && a != b
    {
        return Err(outer.error("tie_word_embeddings", format!("is {a}, but `text_config.tie_word_embeddings` is {b}")));
    }
    // Exporters put it on either level, or repeat it.
    let outer_quant = quant::read(&outer, Family::KimiK25.tensor_prefix())?;
    if outer_quant.is_some()
        && text.get("quantization_config").is_some_and(|q| outer.get("quantization_config") != Some(q))
    {
        return Err(
            outer.error("quantization_config", "differs from `text_config.quantization_config`: keep one of the two")
        );
    }
    let mut config = read(text, Family::KimiK25)?;
    config.tied |= outer_tie.unwrap_or(false);
    config.quantization = config.quantization.or(outer_quant);
    outer.finish()?;
    Ok(config)
}

/// Reads the text model; `fields` is the object that holds its fields.
pub(super) fn read(fields: Fields<'_>, family: Family) -> Result<TargetConfig> {
    fields.ignore(&["model_type"]);
    common(&fields, &["DeepseekV3ForCausalLM", "KimiK2ForCausalLM"])?;
    fields.ignore(IGNORED);
    let vocab = fields.size("vocab_size")?;
    let attention = attention(&fields)?;
    let rope = rope::read(&fields, attention.rope, interleaved(&fields)?, AmplitudeRule::Target)?;
    let config = TargetConfig {
        path: fields.path().to_owned(),
        family,
        hidden: fields.size("hidden_size")?,
        vocab,
        layers: layers(&fields)?,
        attention: Attention::Mla(attention),
        rope,
        rms_eps: fields.positive("rms_norm_eps")?,
        tied: fields.opt_bool("tie_word_embeddings")?.unwrap_or(false),
        max_positions: fields.size("max_position_embeddings")?,
        bos: eos::bos(&fields)?,
        eos: eos::read(&fields, vocab)?,
        mtp_layers: fields.opt_count("num_nextn_predict_layers")?.unwrap_or(0),
        quantization: quant::read(&fields, family.tensor_prefix())?,
    };
    fields.finish()?;
    Ok(config)
}

/// `rope_interleave`; DeepSeek's own code, whose configs lack the field, interleaves.
fn interleaved(fields: &Fields<'_>) -> Result<bool> {
    Ok(fields.opt_bool("rope_interleave")?.unwrap_or(true))
}

fn attention(fields: &Fields<'_>) -> Result<Mla> {
    let mla = Mla {
        heads: fields.size("num_attention_heads")?,
        q_lora: fields.opt_size("q_lora_rank")?,
        kv_lora: fields.size("kv_lora_rank")?,
        nope: fields.size("qk_nope_head_dim")?,
        rope: fields.size("qk_rope_head_dim")?,
        v: fields.size("v_head_dim")?,
    };
    fields.only("attention_bias", &json!(false), "latent attention is built without biases")?;
    fields.only("num_key_value_heads", &json!(mla.heads), "latent attention has as many key heads as query heads")?;
    fields.only("qk_head_dim", &json!(mla.nope + mla.rope), "it is qk_nope_head_dim + qk_rope_head_dim")?;
    fields.only("head_dim", &json!(mla.rope), "under latent attention it repeats qk_rope_head_dim")?;
    fields.only("sliding_window", &Value::Null, "this family has none")?;
    Ok(mla)
}

fn layers(fields: &Fields<'_>) -> Result<Vec<Layer>> {
    let count = layer_count(fields)?;
    let dense = Ffn::Dense { intermediate: fields.size("intermediate_size")? };
    let first_dense = fields.opt_count("first_k_dense_replace")?;
    // Without routed experts DeepSeek's code builds a dense model.
    let moe = match fields.opt_count("n_routed_experts")? {
        Some(experts) if experts > 0 => Some(moe(fields, experts)?),
        _ => None,
    };
    let every = fields.opt_size("moe_layer_freq")?.unwrap_or(1);
    let first_dense = match (first_dense, &moe) {
        (Some(n), _) => n,
        (None, None) => count,
        (None, Some(_)) => fields.size("first_k_dense_replace")?,
    };
    let ffn = |i: usize| match &moe {
        Some(moe) if i >= first_dense && i.is_multiple_of(every) => Ffn::Moe(moe.clone()),
        _ => dense.clone(),
    };
    Ok((0..count).map(|i| Layer { ffn: ffn(i), window: None }).collect())
}

fn moe(fields: &Fields<'_>, experts: usize) -> Result<Moe> {
    // transformers' own class has no such fields: sigmoid scores and noaux_tc are what deepseek_v3 means.
    fields.only("scoring_func", &json!("sigmoid"), "it is the score of DeepSeek-V3")?;
    fields.only("topk_method", &json!("noaux_tc"), "it is the choice of DeepSeek-V3")?;
    fields.only("num_local_experts", &json!(experts), "it repeats n_routed_experts")?;
    let top_k = fields.size("num_experts_per_tok")?;
    let (n_group, topk_group) = (fields.size("n_group")?, fields.size("topk_group")?);
    if !experts.is_multiple_of(n_group) {
        return Err(fields.error("n_group", format!("{experts} experts cannot be split into {n_group} equal groups")));
    }
    if n_group > 1 && experts / n_group < 2 {
        return Err(fields.error("n_group", "leaves groups of one expert, but a group is ranked by its two best"));
    }
    if topk_group > n_group {
        return Err(fields.error("topk_group", format!("is {topk_group}, more than `n_group` = {n_group}")));
    }
    let open = experts / n_group * topk_group;
    if top_k > open {
        return Err(
            fields.error("num_experts_per_tok", format!("is {top_k}, but only {open} experts may be chosen from"))
        );
    }
    let moe = Moe {
        experts,
        top_k,
        intermediate: fields.size("moe_intermediate_size")?,
        shared: fields.opt_count("n_shared_experts")?.unwrap_or(0),
        router: Router::Sigmoid {
            n_group,
            topk_group,
            norm_topk: fields.bool("norm_topk_prob")?,
            scaling: fields.positive("routed_scaling_factor")?,
        },
    };
    if moe.shared > experts.max(64) {
        return Err(fields.error("n_shared_experts", format!("is {}, more than a model has", moe.shared)));
    }
    Ok(moe)
}
