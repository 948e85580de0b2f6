//! Every config field that changes the maths and is not honoured is refused, by file and field.

use std::path::Path;

use serde_json::{Value, json};
use treeline_checkpoint::{DflashConfig, TargetConfig};

fn fixture(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs").join(format!("{name}.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Sets the field at a dotted path, or removes it for `null` behind `-`.
fn edit(value: &mut Value, path: &str, new: Value) {
    let (parents, last) = path.rsplit_once('.').map_or(("", path), |(p, l)| (p, l));
    let mut at = value;
    for part in parents.split('.').filter(|p| !p.is_empty()) {
        at = &mut at[part];
    }
    let map = at.as_object_mut().unwrap();
    match last.strip_prefix('-') {
        Some(gone) => assert!(map.remove(gone).is_some(), "{path} is not in the fixture"),
        None => drop(map.insert(last.to_owned(), new)),
    }
}

/// The fixture with one change must be refused with an error that names the file and `field` and says `says`.
fn refuse(name: &str, path: &str, new: Value, field: &str, says: &str) {
    let mut value = fixture(name);
    edit(&mut value, path, new);
    let text = value.to_string();
    let file = Path::new("folder/config.json");
    let error = match name.starts_with("dflash") {
        true => DflashConfig::from_json(&text, file).err(),
        false => TargetConfig::from_json(&text, file).err(),
    };
    let error = error.unwrap_or_else(|| panic!("{name} with {path} was accepted")).to_string();
    assert!(error.starts_with(&format!("folder/config.json: `{field}`: ")), "{name} with {path}: {error}");
    assert!(error.contains(says), "{name} with {path}: {error}");
}

#[test]
fn every_family_refuses_what_it_does_not_know() {
    for name in ["kimi_k2_thinking", "deepseek_v3", "qwen3_8b", "qwen3_30b_a3b", "llama_31_8b", "dflash_kimi_k26"] {
        refuse(
            name,
            "attn_logit_softcapping",
            json!(50.0),
            "attn_logit_softcapping",
            "not a field that this model family",
        );
        refuse(name, "hidden_act", json!("gelu"), "hidden_act", "\"gelu\" is not supported");
        refuse(name, "-hidden_size", json!(0), "hidden_size", "missing");
        refuse(name, "hidden_size", json!(0), "hidden_size", "at least 1");
        refuse(name, "hidden_size", json!(-4), "hidden_size", "must be a whole number");
        refuse(name, "hidden_size", json!(1u64 << 60), "hidden_size", "must be a whole number from 0 to");
        refuse(name, "hidden_size", json!("4096"), "hidden_size", "must be a whole number");
        refuse(name, "num_hidden_layers", json!(1_000_000), "num_hidden_layers", "more than 4096");
        refuse(name, "-rms_norm_eps", json!(0), "rms_norm_eps", "missing");
        refuse(name, "rms_norm_eps", json!(-1e-6), "rms_norm_eps", "greater than 0");
        refuse(name, "is_encoder_decoder", json!(true), "is_encoder_decoder", "is true");
        refuse(name, "architectures", json!(["MysteryForCausalLM"]), "architectures", "Mystery");
    }
}

#[test]
fn rope() {
    refuse("qwen3_8b", "-rope_theta", json!(0), "rope_theta", "missing");
    refuse(
        "qwen3_8b",
        "rope_scaling",
        json!({"type": "dynamic", "factor": 2.0}),
        "rope_scaling.rope_type",
        "\"dynamic\"",
    );
    refuse("qwen3_8b", "rope_scaling", json!({"factor": 2.0}), "rope_scaling.rope_type", "missing");
    refuse(
        "qwen3_8b",
        "rope_scaling",
        json!({"type": "yarn", "factor": 2.0}),
        "rope_scaling.original_max_position_embeddings",
        "missing",
    );
    refuse(
        "qwen3_windows",
        "rope_parameters.partial_rotary_factor",
        json!(0.5),
        "rope_parameters.partial_rotary_factor",
        "0.5",
    );
    refuse("qwen3_windows", "rope_parameters.type", json!("llama3"), "rope_parameters.type", "keep one");
    refuse("qwen3_windows", "rope_theta", json!(5.0), "rope_theta", "keep one of the two");
    refuse(
        "qwen3_windows",
        "rope_parameters.short_factor",
        json!([1.0]),
        "rope_parameters.short_factor",
        "not a field",
    );
    refuse("qwen3_windows", "rope_scaling", json!({"type": "default"}), "rope_scaling", "differs from");
    refuse("kimi_k2_thinking", "rope_scaling.-mscale", json!(0), "rope_scaling", "without the other");
    refuse("llama_31_8b", "rope_scaling.high_freq_factor", json!(1.0), "rope_scaling.high_freq_factor", "greater than");
    refuse("llama_31_8b", "head_dim", json!(127), "head_dim", "even");
}

#[test]
fn latent_attention_and_experts() {
    let k = "kimi_k2_thinking";
    refuse(k, "attention_bias", json!(true), "attention_bias", "without biases");
    refuse(k, "num_key_value_heads", json!(8), "num_key_value_heads", "only 64 is supported");
    refuse(k, "topk_method", json!("greedy"), "topk_method", "noaux_tc");
    refuse(k, "scoring_func", json!("softmax"), "scoring_func", "sigmoid");
    refuse(k, "n_group", json!(5), "n_group", "384 experts cannot be split into 5");
    refuse(k, "n_group", json!(384), "n_group", "ranked by its two best");
    refuse(k, "topk_group", json!(2), "topk_group", "more than `n_group`");
    refuse(k, "num_experts_per_tok", json!(385), "num_experts_per_tok", "only 384");
    refuse(k, "-first_k_dense_replace", json!(0), "first_k_dense_replace", "missing");
    refuse(k, "-norm_topk_prob", json!(0), "norm_topk_prob", "missing");
    refuse(k, "qk_head_dim", json!(64), "qk_head_dim", "only 192");
    refuse(k, "eos_token_id", json!(163_840), "eos_token_id", "outside the vocabulary");
    refuse("kimi_k25", "text_config.scoring_func", json!("softmax"), "text_config.scoring_func", "sigmoid");
    refuse("kimi_k25", "text_config.model_type", json!("llama"), "text_config.model_type", "must be");
    refuse("kimi_k25", "-text_config", json!(0), "text_config", "missing");
    refuse("kimi_k25", "tie_word_embeddings", json!(true), "tie_word_embeddings", "but `text_config");
    refuse("kimi_k25", "model_type", json!("kimi_linear"), "model_type", "is not supported");
    let mut regular = fixture(k);
    edit(&mut regular, "moe_layer_freq", json!(2));
    let c = TargetConfig::from_json(&regular.to_string(), Path::new("c")).unwrap();
    assert!(matches!(c.layers[2].ffn, treeline_checkpoint::Ffn::Moe(_)));
    assert!(matches!(c.layers[3].ffn, treeline_checkpoint::Ffn::Dense { .. }));
}

#[test]
fn quantisation() {
    let k = "kimi_k2_thinking";
    let q = "quantization_config";
    refuse(k, &format!("{q}.quant_method"), json!("fp8"), &format!("{q}.quant_method"), "\"fp8\"");
    refuse(k, &format!("{q}.format"), json!("nvfp4-pack-quantized"), &format!("{q}.format"), "nvfp4");
    refuse(k, &format!("{q}.kv_cache_scheme"), json!({"num_bits": 8}), &format!("{q}.kv_cache_scheme"), "KV cache");
    refuse(k, &format!("{q}.ignore"), json!(["re:(("]), &format!("{q}.ignore"), "re:((");
    refuse(
        k,
        &format!("{q}.sparsity_config"),
        json!({"format": "dense"}),
        &format!("{q}.sparsity_config"),
        "not supported",
    );
    let g = format!("{q}.config_groups.group_0");
    refuse(k, &format!("{g}.targets"), json!(["Conv1d"]), &format!("{g}.targets"), "Conv1d");
    refuse(
        k,
        &format!("{g}.input_activations"),
        json!({"num_bits": 8}),
        &format!("{g}.input_activations"),
        "activations",
    );
    for (key, bad) in [
        ("num_bits", json!(8)),
        ("symmetric", json!(false)),
        ("group_size", json!(128)),
        ("strategy", json!("channel")),
        ("type", json!("float")),
        ("actorder", json!("group")),
        ("zero_point", json!(1)),
    ] {
        refuse(k, &format!("{g}.weights.{key}"), bad, &format!("{g}.weights.{key}"), "");
    }
    refuse(k, &format!("{g}.weights.-symmetric"), json!(0), &format!("{g}.weights.symmetric"), "missing");
    let fp8 = json!({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]});
    refuse("deepseek_v3", q, fp8, "quantization_config.quant_method", "convert the checkpoint");
    refuse("kimi_k25_transformers5", &format!("{q}.ignore"), json!(["lm_head"]), q, "differs from");
}

#[test]
fn grouped_attention_and_windows() {
    refuse("qwen3_8b", "num_key_value_heads", json!(5), "num_key_value_heads", "cannot share");
    refuse("qwen3_8b", "-head_dim", json!(0), "head_dim", "missing");
    refuse("qwen3_8b", "layer_types", json!(["full_attention"]), "layer_types", "1 entries for 36 layers");
    refuse(
        "qwen3_windows",
        "layer_types",
        json!(["linear_attention", "a", "b", "c"]),
        "layer_types",
        "linear_attention",
    );
    refuse("qwen3_windows", "sliding_window", json!(null), "sliding_window", "missing");
    refuse("qwen3_windows", "use_sliding_window", json!(false), "use_sliding_window", "sliding layers");
    refuse("qwen3_30b_a3b", "use_sliding_window", json!(true), "use_sliding_window", "not supported");
    refuse("qwen3_30b_a3b", "mlp_only_layers", json!([48]), "mlp_only_layers", "names layer 48");
    refuse("qwen3_30b_a3b", "num_local_experts", json!(64), "num_experts", "is 128, but");
    refuse("qwen3_30b_a3b", "decoder_sparse_step", json!(0), "decoder_sparse_step", "at least 1");
    refuse(
        "qwen3_30b_a3b",
        "shared_expert_intermediate_size",
        json!(64),
        "shared_expert_intermediate_size",
        "not a field",
    );
    refuse("llama_31_8b", "mlp_bias", json!(true), "mlp_bias", "without biases");
    refuse("llama_31_8b", "sliding_window", json!(4096), "sliding_window", "llama has no sliding window");
}

#[test]
fn drafter() {
    let d = "dflash_kimi_k26";
    refuse(d, "architectures", json!(["DFlash2DraftModel"]), "architectures", "DFlash2DraftModel");
    refuse(d, "-architectures", json!(0), "architectures", "missing");
    refuse(d, "model_type", json!("llama"), "model_type", "Qwen3 layers");
    refuse(d, "is_causal", json!(true), "is_causal", "without a causal mask");
    refuse(d, "block_size", json!(16), "block_size", "keep one of the two");
    refuse(d, "dflash_config.-block_size", json!(0), "block_size", "missing");
    refuse(d, "-dflash_config", json!(0), "block_size", "missing");
    refuse(d, "dflash_config.block_size", json!(1), "block_size", "from 2");
    refuse(d, "dflash_config.mask_token_id", json!(163_840), "dflash_config.mask_token_id", "outside the vocabulary");
    refuse(d, "dflash_config.-mask_token_id", json!(0), "dflash_config.mask_token_id", "missing");
    refuse(d, "dflash_config.target_layer_ids", json!([]), "dflash_config.target_layer_ids", "empty");
    refuse(d, "dflash_config.target_layer_ids", json!([1, 61]), "dflash_config.target_layer_ids", "names layer 61");
    refuse(d, "dflash_config.target_layer_ids", json!([1, 1]), "dflash_config.target_layer_ids", "twice");
    refuse(d, "dflash_config.selector_rank", json!(256), "dflash_config.selector_rank", "not a field");
    refuse(d, "dflash_config.projector_type", json!("domino"), "dflash_config.projector_type", "further layers");
    refuse(d, "dflash_config.attention_mode", json!("mla"), "dflash_config.attention_mode", "grouped-query");
    refuse(d, "dflash_config.num_target_layers", json!(60), "dflash_config.num_target_layers", "only 61");
    refuse(d, "dflash_config.causal", json!(true), "dflash_config.causal", "without a causal mask");
    refuse(d, "attention_bias", json!(true), "attention_bias", "no biases");
}
