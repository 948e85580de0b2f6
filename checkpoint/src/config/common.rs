//! What the configs of all families have in common: fields that change nothing, and the checks that every model shares.

use serde_json::json;

use crate::error::Result;
use crate::json::Fields;

/// More layers than any model has; bounds the per-layer lists that a config can ask for.
const LAYER_LIMIT: usize = 4096;

/// Fields of every family that do not change what the model computes.
pub(super) const IGNORED: &[&str] = &[
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_name_or_path",
    "attention_dropout",
    "auto_map",
    "dtype",
    "initializer_range",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "router_aux_loss_coef",
    "torch_dtype",
    "transformers_version",
    "use_cache",
];

/// Reads or checks what all families share: the activation, the class name, what is ignored.
pub(super) fn common(fields: &Fields<'_>, architectures: &[&str]) -> Result<()> {
    fields.ignore(IGNORED);
    for list in fields.opt_strings("architectures")?.iter() {
        if let [name] = list[..]
            && architectures.contains(&name)
        {
            continue;
        }
        return Err(fields.error("architectures", format!("is {list:?}, but {architectures:?} is supported")));
    }
    let act = fields.str("hidden_act")?;
    if act != "silu" {
        return Err(fields.error("hidden_act", format!("\"{act}\" is not supported; \"silu\" is")));
    }
    // Old exporters write every default of transformers' base class: these would change the model if they were set.
    for (key, wanted) in [
        ("is_decoder", json!(false)),
        ("is_encoder_decoder", json!(false)),
        ("add_cross_attention", json!(false)),
        ("tie_encoder_decoder", json!(false)),
        ("use_bfloat16", json!(false)),
        ("pruned_heads", json!({})),
    ] {
        fields.only(key, &wanted, "a decoder is built")?;
    }
    fields.ignore(BASE_CLASS);
    Ok(())
}

/// What old exporters write from transformers' base class, about training, generation and labels.
pub(super) const BASE_CLASS: &[&str] = &[
    "bad_words_ids",
    "begin_suppress_tokens",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torchscript",
    "typical_p",
];

/// Number of layers, bounded because lists are made from it.
pub(super) fn layer_count(fields: &Fields<'_>) -> Result<usize> {
    let layers = fields.size("num_hidden_layers")?;
    if layers > LAYER_LIMIT {
        return Err(fields.error("num_hidden_layers", format!("is {layers}, more than {LAYER_LIMIT}")));
    }
    Ok(layers)
}
