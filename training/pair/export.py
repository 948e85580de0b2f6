"""Checkpoints in the layout of their public families: config.json and safetensors."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from .quant import pack, quantise
from .shape import BOS, EOS, MASK, PAD, ArShape, DFlashShape, TargetShape

ATTENTION = {
    "q_a": "q_a_proj", "q_b": "q_b_proj", "kv_a": "kv_a_proj_with_mqa", "kv_b": "kv_b_proj", "o": "o_proj",
    "q_norm": "q_a_layernorm", "kv_norm": "kv_a_layernorm",
}


def target_config(s: TargetShape) -> dict:
    """config.json of the target; every field that a loader could default is written out."""
    return {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", "dtype": "bfloat16", "torch_dtype": "bfloat16",
        "vocab_size": s.vocab, "hidden_size": s.hidden, "intermediate_size": s.dense_inter, "moe_intermediate_size": s.moe_inter,
        "num_hidden_layers": s.layers, "num_attention_heads": s.heads, "num_key_value_heads": s.heads,
        "n_shared_experts": s.shared, "n_routed_experts": s.experts, "num_experts_per_tok": s.top_k, "ep_size": 1,
        "first_k_dense_replace": s.dense_layers, "moe_layer_freq": 1, "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc",
        "scoring_func": "sigmoid", "norm_topk_prob": True, "routed_scaling_factor": s.routed_scale,
        "q_lora_rank": s.q_lora, "kv_lora_rank": s.kv_lora, "qk_nope_head_dim": s.nope, "qk_rope_head_dim": s.rope, "v_head_dim": s.v_dim,
        "rope_theta": s.theta, "rope_scaling": None, "rope_interleave": True, "max_position_embeddings": s.context,
        "rms_norm_eps": s.eps, "hidden_act": "silu", "attention_bias": False, "attention_dropout": 0.0, "initializer_range": 0.02,
        "tie_word_embeddings": True, "use_cache": True, "num_nextn_predict_layers": 0,
        "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD,
        "quantization_config": {
            "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed", "kv_cache_scheme": None,
            "config_groups": {"group_0": {
                "targets": ["Linear"], "input_activations": None, "output_activations": None,
                "weights": {
                    "num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32, "dynamic": False,
                    "actorder": None, "block_structure": None, "observer": "minmax", "observer_kwargs": {},
                },
            }},
            "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "re:.*mlp\\.gate$"],
        },
    }


def dense_tensors(mlp, prefix: str) -> dict:
    return {f"{prefix}{k}_proj.weight": getattr(mlp, k).data for k in ("gate", "up", "down")}


def target_tensors(model) -> dict:
    """Every tensor of the checkpoint by its public name, on the CPU."""
    s, out = model.s, {"model.embed_tokens.weight": model.embed.data, "model.norm.weight": model.norm.data}
    for i, block in enumerate(model.blocks):
        p = f"model.layers.{i}."
        out[p + "input_layernorm.weight"], out[p + "post_attention_layernorm.weight"] = block.norm1.data, block.norm2.data
        for ours, theirs in ATTENTION.items():
            out[f"{p}self_attn.{theirs}.weight"] = getattr(block.attn, ours).data
        if block.dense:
            out |= dense_tensors(block.mlp, p + "mlp.")
            continue
        out[p + "mlp.gate.weight"] = block.mlp.router.data
        out |= dense_tensors(block.mlp.shared, p + "mlp.shared_experts.")
        bias = block.mlp.bias.data.float()
        for e in range(s.experts):
            parts = {"gate": block.mlp.w13.data[e, : s.moe_inter], "up": block.mlp.w13.data[e, s.moe_inter :], "down": block.mlp.w2.data[e]}
            for name, w in parts.items():
                q = f"{p}mlp.experts.{e}.{name}_proj."
                out[q + "weight"] = w
        out[p + "mlp.gate.e_score_correction_bias"] = bias
    return {k: (v if k.endswith("bias") else v.to(torch.bfloat16)).detach().cpu().contiguous() for k, v in out.items()}


def packed(tensors: dict, masters: dict | None = None) -> dict:
    """Routed expert weights replaced by `weight_packed`, `weight_scale`, `weight_shape`; `masters` gives their fp32 values."""
    out = {}
    for name, w in tensors.items():
        if ".mlp.experts." not in name:
            out[name] = w
            continue
        q, scale = quantise((masters or tensors)[name])
        stem = name.removesuffix("weight")
        out[stem + "weight_packed"], out[stem + "weight_scale"] = pack(q), scale
        out[stem + "weight_shape"] = torch.tensor(w.shape, dtype=torch.int32)
    return out


def write(folder: Path, config: dict, tensors: dict, shard_bytes: int | None = None):
    """config.json and model.safetensors, or numbered shards with their index when `shard_bytes` is given."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    shards, size = [{}], 0
    for name, t in tensors.items():
        if shard_bytes and size + t.nbytes > shard_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = t
        size += t.nbytes
    if len(shards) == 1:
        save_file(shards[0], folder / "model.safetensors", metadata={"format": "pt"})
        return
    index = {}
    for i, shard in enumerate(shards, 1):
        file = f"model-{i:05}-of-{len(shards):05}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        index |= dict.fromkeys(shard, file)
    total = sum(t.nbytes for t in tensors.values())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": index}, separators=(",", ":")))


def dflash_config(s: DFlashShape, target: TargetShape) -> dict:
    """config.json of the block-diffusion drafter."""
    return {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "dtype": "bfloat16", "torch_dtype": "bfloat16",
        "vocab_size": target.vocab, "hidden_size": s.hidden, "intermediate_size": s.inter, "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads, "num_key_value_heads": s.kv_heads, "head_dim": s.head_dim, "hidden_act": "silu",
        "max_position_embeddings": s.context, "rope_theta": s.theta, "rope_scaling": None, "rms_norm_eps": s.eps,
        "attention_bias": False, "attention_dropout": 0.0, "initializer_range": 0.02, "tie_word_embeddings": True, "use_cache": True,
        "layer_types": ["full_attention"] * s.layers, "use_sliding_window": False, "sliding_window": None, "max_window_layers": s.layers,
        "block_size": s.block, "num_target_layers": target.layers,
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": list(s.target_layers)},
        "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD,
    }


def dflash_tensors(model) -> dict:
    out = {"fc.weight": model.fc.data, "hidden_norm.weight": model.hidden_norm.data, "norm.weight": model.norm.data}
    for i, b in enumerate(model.blocks):
        p = f"layers.{i}."
        out |= {f"{p}self_attn.{k}_proj.weight": getattr(b, k).data for k in ("q", "k", "v", "o")}
        out |= {f"{p}self_attn.{k}_norm.weight": getattr(b, k + "_norm").data for k in ("q", "k")}
        out |= dense_tensors(b.mlp, p + "mlp.")
        out[p + "input_layernorm.weight"], out[p + "post_attention_layernorm.weight"] = b.norm1.data, b.norm2.data
    return {k: v.detach().to(torch.bfloat16).cpu().contiguous() for k, v in out.items()}


def ar_config(s: ArShape) -> dict:
    """config.json of the small llama."""
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "torch_dtype": "bfloat16",
        "vocab_size": s.vocab, "hidden_size": s.hidden, "intermediate_size": s.inter, "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads, "num_key_value_heads": s.kv_heads, "head_dim": s.head_dim, "hidden_act": "silu",
        "max_position_embeddings": s.context, "rope_theta": s.theta, "rope_scaling": None, "rms_norm_eps": s.eps,
        "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0, "initializer_range": 0.02, "pretraining_tp": 1,
        "tie_word_embeddings": True, "use_cache": True, "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD,
    }


def ar_tensors(model) -> dict:
    out = {"model.embed_tokens.weight": model.embed.data, "model.norm.weight": model.norm.data}
    for i, b in enumerate(model.blocks):
        p = f"model.layers.{i}."
        out |= {f"{p}self_attn.{k}_proj.weight": getattr(b, k).data for k in ("q", "k", "v", "o")}
        out |= dense_tensors(b.mlp, p + "mlp.")
        out[p + "input_layernorm.weight"], out[p + "post_attention_layernorm.weight"] = b.norm1.data, b.norm2.data
    return {k: v.detach().to(torch.bfloat16).cpu().contiguous() for k, v in out.items()}
