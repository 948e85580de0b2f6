"""Exported checkpoints back into this recipe's models."""

import json
from dataclasses import fields
from pathlib import Path

import torch
from safetensors.torch import load_file

from .ar import Ar
from .dflash import DFlash
from .export import ATTENTION
from .quant import dequantise, unpack
from .shape import ArShape, DFlashShape, TargetShape
from .target import Target

KEYS = {
    "vocab": "vocab_size", "hidden": "hidden_size", "layers": "num_hidden_layers", "dense_layers": "first_k_dense_replace",
    "dense_inter": "intermediate_size", "inter": "intermediate_size", "experts": "n_routed_experts", "top_k": "num_experts_per_tok",
    "moe_inter": "moe_intermediate_size", "shared": "n_shared_experts", "routed_scale": "routed_scaling_factor", "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "head_dim": "head_dim", "q_lora": "q_lora_rank", "kv_lora": "kv_lora_rank", "nope": "qk_nope_head_dim",
    "rope": "qk_rope_head_dim", "v_dim": "v_head_dim", "theta": "rope_theta", "eps": "rms_norm_eps", "context": "max_position_embeddings",
}


def read(folder: Path):
    """config.json and every tensor of a checkpoint folder."""
    config = json.loads((folder / "config.json").read_text())
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(file)
    return config, tensors


def shape_of(kind, config):
    return kind(**{f.name: config[KEYS[f.name]] for f in fields(kind)})


def dense(tensors: dict) -> dict:
    """fp32 weights, INT4 experts dequantised."""
    out = {}
    for name, t in tensors.items():
        if name.endswith("weight_packed"):
            stem = name.removesuffix("_packed")
            w = dequantise(unpack(t), tensors[stem + "_scale"])
            if list(w.shape) != tensors[stem + "_shape"].tolist():
                raise SystemExit(f"{name}: shape {list(w.shape)} is not weight_shape")
            out[stem] = w
        elif not name.endswith(("weight_scale", "weight_shape")):
            out[name] = t.float()
    return out


def fill_target(config, w) -> Target:
    """This recipe's model from checkpoint tensors."""
    s = shape_of(TargetShape, config)
    model = Target(s)
    put = lambda p, name: p.data.copy_(w[name])  # noqa: E731
    put(model.embed, "model.embed_tokens.weight"), put(model.norm, "model.norm.weight")
    for i, b in enumerate(model.blocks):
        p = f"model.layers.{i}."
        put(b.norm1, p + "input_layernorm.weight"), put(b.norm2, p + "post_attention_layernorm.weight")
        for ours, theirs in ATTENTION.items():
            put(getattr(b.attn, ours), f"{p}self_attn.{theirs}.weight")
        _fill_mlp(*((b.mlp, w, p + "mlp.") if b.dense else (b.mlp.shared, w, p + "mlp.shared_experts.")))
        if not b.dense:
            put(b.mlp.router, p + "mlp.gate.weight"), put(b.mlp.bias, p + "mlp.gate.e_score_correction_bias")
            for e in range(s.experts):
                q = f"{p}mlp.experts.{e}."
                b.mlp.w13.data[e] = torch.cat((w[q + "gate_proj.weight"], w[q + "up_proj.weight"]))
                b.mlp.w2.data[e] = w[q + "down_proj.weight"]
    return model


def _fill_mlp(mlp, w, stem: str):
    for k in ("gate", "up", "down"):
        getattr(mlp, k).data.copy_(w[f"{stem}{k}_proj.weight"])


def fill_dflash(config, w) -> DFlash:
    """The block-diffusion drafter from checkpoint tensors."""
    s = DFlashShape(
        hidden=config["hidden_size"], layers=config["num_hidden_layers"], heads=config["num_attention_heads"], kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"], inter=config["intermediate_size"], block=config["block_size"],
        target_layers=tuple(config["dflash_config"]["target_layer_ids"]), theta=config["rope_theta"], eps=config["rms_norm_eps"],
        context=config["max_position_embeddings"],
    )
    model = DFlash(s)
    model.fc.data.copy_(w["fc.weight"]), model.hidden_norm.data.copy_(w["hidden_norm.weight"]), model.norm.data.copy_(w["norm.weight"])
    for i, b in enumerate(model.blocks):
        p = f"layers.{i}."
        for k in ("q", "k", "v", "o"):
            getattr(b, k).data.copy_(w[f"{p}self_attn.{k}_proj.weight"])
        for k in ("q", "k"):
            getattr(b, k + "_norm").data.copy_(w[f"{p}self_attn.{k}_norm.weight"])
        _fill_mlp(b.mlp, w, p + "mlp.")
        b.norm1.data.copy_(w[p + "input_layernorm.weight"]), b.norm2.data.copy_(w[p + "post_attention_layernorm.weight"])
    return model


def fill_ar(config, w) -> Ar:
    """The autoregressive drafter from checkpoint tensors."""
    model = Ar(shape_of(ArShape, config))
    model.embed.data.copy_(w["model.embed_tokens.weight"]), model.norm.data.copy_(w["model.norm.weight"])
    for i, b in enumerate(model.blocks):
        p = f"model.layers.{i}."
        for k in ("q", "k", "v", "o"):
            getattr(b, k).data.copy_(w[f"{p}self_attn.{k}_proj.weight"])
        _fill_mlp(b.mlp, w, p + "mlp.")
        b.norm1.data.copy_(w[p + "input_layernorm.weight"]), b.norm2.data.copy_(w[p + "post_attention_layernorm.weight"])
    return model


def load(folder: Path):
    """The model of a checkpoint folder, by its config's architecture."""
    config, tensors = read(folder)
    fill = {"DeepseekV3ForCausalLM": fill_target, "DFlashDraftModel": fill_dflash, "LlamaForCausalLM": fill_ar}[config["architectures"][0]]
    return fill(config, dense(tensors)).requires_grad_(False)
