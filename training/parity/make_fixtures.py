"""Tiny random checkpoints of every target family and their logits, computed with `transformers` in float64.

    python training/parity/make_fixtures.py        (torch, transformers, safetensors; a few seconds, no GPU)

Each folder under backend-cpu/tests/fixtures/ gets config.json, model.safetensors and expected.safetensors:
`plain.tokens` / `plain.logits` for a prefix decoded causally, and per tree `tree{i}.prefix`, `.parents` (-1 = root),
`.tokens`, `.logits` [rows, vocabulary] with position = start + depth. The mask is built here from its definition.
"""

import torch
from safetensors.torch import save_file
from transformers import (DeepseekV3Config, DeepseekV3ForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM)

import common
import dflash_reference
from common import FIXTURES, Weights, additive, tree_layout, within_window

VOCAB = 64
TREES = [(5, common.chain(7)), (11, common.comb(6)), (23, common.random_tree(16, 1, 6)), (40, common.random_tree(39, 2, 12))]


def dense_mlp(w, name, hidden, inter):
    w.linear(f"{name}.gate_proj", inter, hidden)
    w.linear(f"{name}.up_proj", inter, hidden)
    w.linear(f"{name}.down_proj", hidden, inter)


def experts(w, name, cfg, count, int4):
    add = w.int4 if int4 else w.linear
    h, i = cfg["hidden_size"], cfg["moe_intermediate_size"]
    for e in range(count):
        add(f"{name}.experts.{e}.gate_proj", i, h)
        add(f"{name}.experts.{e}.up_proj", i, h)
        add(f"{name}.experts.{e}.down_proj", h, i)


def common_tensors(w, cfg):
    w.normal("model.embed_tokens.weight", cfg["vocab_size"], cfg["hidden_size"], std=1.0)
    w.norm("model.norm", cfg["hidden_size"])
    if not cfg.get("tie_word_embeddings"):
        w.linear("lm_head", cfg["vocab_size"], cfg["hidden_size"], std=2.0 / cfg["hidden_size"] ** 0.5)


def mla_weights(cfg, seed, int4=False):
    w = Weights(seed)
    common_tensors(w, cfg)
    h, heads = cfg["hidden_size"], cfg["num_attention_heads"]
    nope, rope, v = cfg["qk_nope_head_dim"], cfg["qk_rope_head_dim"], cfg["v_head_dim"]
    for layer in range(cfg["num_hidden_layers"]):
        p = f"model.layers.{layer}"
        a = f"{p}.self_attn"
        w.norm(f"{p}.input_layernorm", h)
        w.norm(f"{p}.post_attention_layernorm", h)
        if cfg["q_lora_rank"]:
            w.linear(f"{a}.q_a_proj", cfg["q_lora_rank"], h)
            w.norm(f"{a}.q_a_layernorm", cfg["q_lora_rank"])
            w.linear(f"{a}.q_b_proj", heads * (nope + rope), cfg["q_lora_rank"])
        else:
            w.linear(f"{a}.q_proj", heads * (nope + rope), h)
        w.linear(f"{a}.kv_a_proj_with_mqa", cfg["kv_lora_rank"] + rope, h)
        w.norm(f"{a}.kv_a_layernorm", cfg["kv_lora_rank"])
        w.linear(f"{a}.kv_b_proj", heads * (nope + v), cfg["kv_lora_rank"])
        w.linear(f"{a}.o_proj", h, heads * v)
        if layer < cfg["first_k_dense_replace"]:
            dense_mlp(w, f"{p}.mlp", h, cfg["intermediate_size"])
        else:
            w.linear(f"{p}.mlp.gate", cfg["n_routed_experts"], h, std=2.0 / h**0.5)
            w.normal(f"{p}.mlp.gate.e_score_correction_bias", cfg["n_routed_experts"], std=0.2, f32=True)
            experts(w, f"{p}.mlp", cfg, cfg["n_routed_experts"], int4)
            dense_mlp(w, f"{p}.mlp.shared_experts", h, cfg["moe_intermediate_size"] * cfg["n_shared_experts"])
    return w


def gqa_weights(cfg, seed, qk_norm=True):
    w = Weights(seed)
    common_tensors(w, cfg)
    h, d = cfg["hidden_size"], cfg["head_dim"]
    for layer in range(cfg["num_hidden_layers"]):
        p = f"model.layers.{layer}"
        a = f"{p}.self_attn"
        w.norm(f"{p}.input_layernorm", h)
        w.norm(f"{p}.post_attention_layernorm", h)
        w.linear(f"{a}.q_proj", cfg["num_attention_heads"] * d, h)
        w.linear(f"{a}.k_proj", cfg["num_key_value_heads"] * d, h)
        w.linear(f"{a}.v_proj", cfg["num_key_value_heads"] * d, h)
        w.linear(f"{a}.o_proj", h, cfg["num_attention_heads"] * d)
        if cfg["attention_bias"]:
            for name, size in (("q", cfg["num_attention_heads"] * d), ("k", cfg["num_key_value_heads"] * d),
                               ("v", cfg["num_key_value_heads"] * d), ("o", h)):
                w.normal(f"{a}.{name}_proj.bias", size, std=0.3)
        if qk_norm:
            w.norm(f"{a}.q_norm", d)
            w.norm(f"{a}.k_norm", d)
        if "num_experts" in cfg:
            w.linear(f"{p}.mlp.gate", cfg["num_experts"], h, std=2.0 / h**0.5)
            experts(w, f"{p}.mlp", cfg, cfg["num_experts"], False)
        else:
            dense_mlp(w, f"{p}.mlp", h, cfg["intermediate_size"])
    return w


def load(model, w):
    """Copies the published layout into the module; its fused expert tensors are stacked here."""
    model = model.double().eval()
    state = dict(w.values)
    fused = {}
    for name in list(state):
        if ".experts." not in name:
            continue
        head, rest = name.split(".experts.")
        index, proj, _ = rest.split(".")
        fused.setdefault(head, {}).setdefault(int(index), {})[proj] = state.pop(name)
    for head, group in fused.items():
        order = [group[i] for i in range(len(group))]
        state[f"{head}.experts.gate_up_proj"] = torch.stack([torch.cat([e["gate_proj"], e["up_proj"]]) for e in order])
        state[f"{head}.experts.down_proj"] = torch.stack([e["down_proj"] for e in order])
    if model.config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    return model


def forward(model, tokens, positions, seen):
    """Logits and the output of every layer, for one sequence under an explicit mask."""
    layers = []
    hooks = [layer.register_forward_hook(lambda _m, _i, o: layers.append((o[0] if isinstance(o, tuple) else o)[0]))
             for layer in model.model.layers]
    mask = additive(seen)
    kinds = set(getattr(model.config, "layer_types", None) or [])
    if "sliding_attention" in kinds:
        narrow = additive(within_window(seen, positions, model.config.sliding_window))
        mask = {"full_attention": mask, "sliding_attention": narrow}
    with torch.no_grad():
        logits = model(input_ids=tokens[None], attention_mask=mask, position_ids=positions[None], use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    return logits, layers


def expectations(model, seed, plain=96):
    gen = torch.Generator().manual_seed(seed)
    tokens = lambda n: torch.randint(0, VOCAB, (n,), generator=gen)
    out = {"plain.tokens": tokens(plain)}
    positions, seen = tree_layout(plain, [])
    out["plain.logits"] = forward(model, out["plain.tokens"], positions, seen)[0]
    for i, (start, parents) in enumerate(TREES):
        prefix, tree = tokens(start), tokens(len(parents))
        positions, seen = tree_layout(start, parents)
        logits = forward(model, torch.cat([prefix, tree]), positions, seen)[0][start:]
        out |= {f"tree{i}.prefix": prefix, f"tree{i}.tokens": tree, f"tree{i}.parents": torch.tensor(parents),
                f"tree{i}.logits": logits}
    return out


def write(folder, out):
    save_file({k: v.to(torch.float32 if v.is_floating_point() else torch.int32).contiguous() for k, v in out.items()},
              folder / "expected.safetensors")
    (folder / "expected.safetensors").chmod(0o644)


def target(name, config, config_class, model_class, weights, seed):
    fields = {k: v for k, v in config.items() if k not in ("model_type", "architectures", "quantization_config")}
    model = model_class(config_class(**fields, attn_implementation="eager", experts_implementation="eager"))
    model = load(model, weights)
    folder = FIXTURES / name
    weights.save(folder, config)
    write(folder, expectations(model, seed))
    print(f"{name}: rope {model.config.rope_parameters}")
    return model


def deepseek(**changes):
    base = dict(architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", vocab_size=VOCAB, hidden_size=32,
                intermediate_size=48, moe_intermediate_size=16, num_hidden_layers=3, num_attention_heads=4,
                num_key_value_heads=4, n_shared_experts=1, n_routed_experts=8, routed_scaling_factor=2.5,
                kv_lora_rank=16, q_lora_rank=24, qk_rope_head_dim=8, v_head_dim=12, qk_nope_head_dim=8, n_group=4,
                topk_group=2, topk_method="noaux_tc", scoring_func="sigmoid", num_experts_per_tok=3, moe_layer_freq=1,
                first_k_dense_replace=1, norm_topk_prob=True, hidden_act="silu", max_position_embeddings=256,
                rms_norm_eps=1e-6, tie_word_embeddings=False, rope_theta=10000.0, rope_scaling=None,
                attention_bias=False, torch_dtype="bfloat16", bos_token_id=0, eos_token_id=1)
    return base | changes


def yarn(factor, original, **more):
    return dict(type="yarn", factor=factor, original_max_position_embeddings=original, beta_fast=32.0, beta_slow=1.0,
                **more)


INT4 = {
    "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
    "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": None, "output_activations": None,
                                  "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group",
                                              "group_size": 32, "dynamic": False, "actorder": None,
                                              "block_structure": None, "observer": "minmax", "observer_kwargs": {}}}},
    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
    "kv_cache_scheme": None,
}


def main():
    torch.manual_seed(0)
    cfg = deepseek(rope_scaling=yarn(4.0, 64, mscale=0.7, mscale_all_dim=1.0))
    target("deepseek_v3", cfg, DeepseekV3Config, DeepseekV3ForCausalLM, mla_weights(cfg, 10), 11)

    # No query compression, no groups, plain RoPE, two shared experts, tied head.
    cfg = deepseek(q_lora_rank=None, n_group=1, topk_group=1, n_shared_experts=2, tie_word_embeddings=True)
    target("deepseek_v3_plain", cfg, DeepseekV3Config, DeepseekV3ForCausalLM, mla_weights(cfg, 20), 21)

    cfg = deepseek(model_type="kimi_k2", hidden_size=64, intermediate_size=96, moe_intermediate_size=32,
                   num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=8, n_routed_experts=16,
                   num_experts_per_tok=4, n_group=1, topk_group=1, routed_scaling_factor=2.827, q_lora_rank=32,
                   kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=16, rms_norm_eps=1e-5,
                   rope_theta=50000.0, rope_scaling=yarn(64.0, 4096, mscale=1.0, mscale_all_dim=1.0),
                   max_position_embeddings=262144, quantization_config=INT4)
    kimi = target("kimi_k2", cfg, DeepseekV3Config, DeepseekV3ForCausalLM, mla_weights(cfg, 30, int4=True), 31)

    qwen = dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3", vocab_size=VOCAB, hidden_size=48,
                intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                hidden_act="silu", max_position_embeddings=256, rms_norm_eps=1e-6, rope_theta=1000000.0,
                rope_scaling=None, attention_bias=False, tie_word_embeddings=True, use_sliding_window=False,
                sliding_window=None, max_window_layers=4, torch_dtype="bfloat16", bos_token_id=0, eos_token_id=1)
    qwen3 = target("qwen3", qwen, Qwen3Config, Qwen3ForCausalLM, gqa_weights(qwen, 40), 41)
    window = qwen | dict(use_sliding_window=True, sliding_window=4, num_hidden_layers=3, max_window_layers=1, attention_bias=True,
                         layer_types=["full_attention", "sliding_attention", "sliding_attention"])
    target("qwen3_window", window, Qwen3Config, Qwen3ForCausalLM, gqa_weights(window, 45), 46)

    cfg = {k: v for k, v in qwen.items() if k not in ("max_window_layers",)}
    cfg |= dict(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", num_hidden_layers=3,
                moe_intermediate_size=24, num_experts=8, num_experts_per_tok=3, norm_topk_prob=True,
                decoder_sparse_step=1, mlp_only_layers=[], tie_word_embeddings=False)
    target("qwen3_moe", cfg, Qwen3MoeConfig, Qwen3MoeForCausalLM, gqa_weights(cfg, 50), 51)

    cfg = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=VOCAB, hidden_size=32,
               intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
               hidden_act="silu", max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=10000.0,
               rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                 original_max_position_embeddings=64),
               attention_bias=False, mlp_bias=False, tie_word_embeddings=False, pretraining_tp=1,
               torch_dtype="bfloat16", bos_token_id=0, eos_token_id=1)
    target("llama", cfg, LlamaConfig, LlamaForCausalLM, gqa_weights(cfg, 60, qk_norm=False), 61)

    for name, model, seed in (("dflash_qwen3", qwen3, 70), ("dflash_kimi", kimi, 80)):
        folder = FIXTURES / name
        config, weights = dflash_reference.checkpoint(name, model.config, seed)
        weights.save(folder, config)
        gen = torch.Generator().manual_seed(seed + 1)
        out = {"tokens": torch.randint(0, VOCAB, (70,), generator=gen)}
        positions, seen = tree_layout(70, [])
        _, layers = forward(model, out["tokens"], positions, seen)
        drafter = dflash_reference.Drafter(config, weights.values, model.model.embed_tokens.weight, model.lm_head.weight)
        # The root of each block is the token at `start`: the features of [0, start) are all that the drafter sees.
        for i, start in enumerate((1, 3, 9, 10, 17, 33, 62)):
            out[f"block{i}.start"] = torch.tensor([start])
            out[f"block{i}.logits"] = drafter.block(layers, start, int(out["tokens"][start]))
        write(folder, out)


if __name__ == "__main__":
    main()
