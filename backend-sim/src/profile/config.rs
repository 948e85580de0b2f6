//! Models and drafters from a checkpoint's `config.json`.

use treeline_checkpoint::{self as checkpoint, DflashConfig, Ffn, TargetConfig};

use super::{Attention, Drafter, DrafterKind, Model, Moe, ProfileError, Quant, Sources};

fn narrow(what: &str, n: usize) -> Result<u32, ProfileError> {
    let mismatch = || ProfileError::Mismatch {
        problem: format!("`{what}` is {n}, which no model has"),
        hint: "check config.json".into(),
    };
    u32::try_from(n).map_err(|_| mismatch())
}

fn refuse(config: &TargetConfig, problem: &str, hint: &str) -> ProfileError {
    ProfileError::Mismatch { problem: format!("{}: {problem}", config.path.display()), hint: hint.into() }
}

/// See [`Model::from_config`].
pub(super) fn model(config: &TargetConfig, name: &str) -> Result<Model, ProfileError> {
    let mut dense = (0_u32, 0_usize);
    let mut moe: Option<&checkpoint::Moe> = None;
    for layer in &config.layers {
        if layer.window.is_some() {
            return Err(refuse(config, "has layers with an attention window", "windows of the target are not priced"));
        }
        match &layer.ffn {
            Ffn::Dense { intermediate } if dense.0 > 0 && dense.1 != *intermediate => {
                return Err(refuse(
                    config,
                    "has dense layers of several widths",
                    "write a profile of their mean width",
                ));
            }
            Ffn::Dense { intermediate } => dense = (dense.0 + 1, *intermediate),
            Ffn::Moe(m) => moe = Some(m),
        }
    }
    let quant = quant(config, moe.is_some())?;
    let moe = moe.map(|m| -> Result<Moe, ProfileError> {
        Ok(Moe {
            experts: narrow("experts", m.experts)?,
            top_k: narrow("top_k", m.top_k)?,
            shared: narrow("shared", m.shared)?,
            intermediate: narrow("moe_intermediate_size", m.intermediate)?,
            quant,
            bytes_per_param: quant.bytes_per_param(),
        })
    });
    let mut sources = Sources::default();
    sources.note("*".into(), "all".into(), config.path.display().to_string());
    Ok(Model {
        name: name.to_owned(),
        layers: narrow("num_hidden_layers", config.layers.len())?,
        dense_layers: dense.0,
        hidden: narrow("hidden_size", config.hidden)?,
        vocab: narrow("vocab_size", config.vocab)?,
        tied: config.tied,
        attention: attention(&config.attention)?,
        dense_intermediate: narrow("intermediate_size", dense.1)?,
        moe: moe.transpose()?,
        bytes_per_param: 2.0,
        max_context: narrow("max_position_embeddings", config.max_positions)?,
        sources,
    })
}

/// Storage of the routed experts; everything else must be bf16.
fn quant(config: &TargetConfig, has_experts: bool) -> Result<Quant, ProfileError> {
    let Some(q) = &config.quantization else { return Ok(Quant::Bf16) };
    let prefix = config.family.tensor_prefix();
    let last = config.layers.len().saturating_sub(1);
    let covers = |module: &str| q.covers(&format!("{prefix}model.layers.{last}.{module}"));
    let others = ["self_attn.o_proj", "mlp.shared_experts.up_proj", "mlp.up_proj"];
    if others.iter().any(|m| covers(m)) || q.covers(&format!("{prefix}lm_head")) {
        let problem = "quantises modules that are no routed experts";
        return Err(refuse(config, problem, "write a model profile with the bytes per parameter of each part"));
    }
    if !has_experts || !covers("mlp.experts.0.up_proj") {
        return Err(refuse(config, "has a quantisation that covers nothing", "remove `quantization_config`"));
    }
    Ok(Quant::Int4)
}

fn attention(attention: &checkpoint::Attention) -> Result<Attention, ProfileError> {
    Ok(match attention {
        checkpoint::Attention::Mla(m) => Attention::Mla {
            heads: narrow("num_attention_heads", m.heads)?,
            q_lora: narrow("q_lora_rank", m.q_lora.unwrap_or(0))?,
            kv_lora: narrow("kv_lora_rank", m.kv_lora)?,
            nope: narrow("qk_nope_head_dim", m.nope)?,
            rope: narrow("qk_rope_head_dim", m.rope)?,
            v_head: narrow("v_head_dim", m.v)?,
        },
        checkpoint::Attention::Gqa(g) => Attention::Gqa {
            heads: narrow("num_attention_heads", g.heads)?,
            kv_heads: narrow("num_key_value_heads", g.kv_heads)?,
            head_dim: narrow("head_dim", g.head_dim)?,
        },
    })
}

/// See [`Drafter::from_dflash`].
pub(super) fn dflash(config: &DflashConfig, name: &str) -> Result<Drafter, ProfileError> {
    let mut sources = Sources::default();
    sources.note("*".into(), "all".into(), config.path.display().to_string());
    let sliding: Vec<usize> = config.windows.iter().flatten().copied().collect();
    Ok(Drafter {
        name: name.to_owned(),
        hidden: narrow("hidden_size", config.hidden)?,
        vocab: narrow("vocab_size", config.vocab)?,
        layers: narrow("num_hidden_layers", config.windows.len())?,
        heads: narrow("num_attention_heads", config.attention.heads)?,
        kv_heads: narrow("num_key_value_heads", config.attention.kv_heads)?,
        head_dim: narrow("head_dim", config.attention.head_dim)?,
        intermediate: narrow("intermediate_size", config.intermediate)?,
        window_layers: narrow("layer_types", sliding.len())?,
        window: narrow("sliding_window", sliding.first().copied().unwrap_or(0))?,
        features: narrow("target_layer_ids", config.target_layers.len())?,
        bytes_per_param: 2.0,
        kind: DrafterKind::Dflash { block: narrow("block_size", config.block)? },
        sources,
    })
}
