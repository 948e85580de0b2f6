"""A second, independent DFlash drafter in plain PyTorch (float64), written from arXiv 2602.06036.

It recomputes everything from all features at every call: no cache, so the engine's context cache is tested too.
"""

import math

import torch

from common import Weights


def checkpoint(name, target, seed):
    """Config and random weights of a drafter for `target` (a transformers config)."""
    kimi = name == "dflash_kimi"
    layers = 3
    config = dict(
        architectures=["DFlashDraftModel"], model_type="qwen3", vocab_size=target.vocab_size,
        hidden_size=target.hidden_size, intermediate_size=80, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, hidden_act="silu", max_position_embeddings=262144,
        rms_norm_eps=1e-5 if kimi else 1e-6, rope_theta=50000.0 if kimi else 1000000.0, rope_scaling=None,
        attention_bias=False, tie_word_embeddings=False, torch_dtype="bfloat16", block_size=8,
        num_target_layers=target.num_hidden_layers,
        layer_types=["full_attention"] * layers, use_sliding_window=False, sliding_window=None,
        max_window_layers=layers,
        dflash_config=dict(mask_token_id=62, target_layer_ids=[0, 2, 3] if kimi else [0, 1, 3]),
    )
    if kimi:
        # The amplitude is written out: a drafter trained with 1 + 0.1 ln 64 loses acceptance under the ratio rule.
        config |= dict(
            rope_scaling=dict(rope_type="yarn", factor=64.0, original_max_position_embeddings=4096, beta_fast=32.0,
                              beta_slow=1.0, attention_factor=1.0 + 0.1 * math.log(64.0)),
            layer_types=["sliding_attention", "sliding_attention", "full_attention"], use_sliding_window=True,
            sliding_window=12, max_window_layers=0)
    w = Weights(seed)
    h, d = config["hidden_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    w.linear("fc", h, h * len(config["dflash_config"]["target_layer_ids"]))
    w.norm("hidden_norm", h)
    w.norm("norm", h)
    for i in range(layers):
        p = f"layers.{i}"
        w.linear(f"{p}.self_attn.q_proj", q, h)
        w.linear(f"{p}.self_attn.k_proj", kv, h)
        w.linear(f"{p}.self_attn.v_proj", kv, h)
        w.linear(f"{p}.self_attn.o_proj", h, q)
        w.norm(f"{p}.self_attn.q_norm", d)
        w.norm(f"{p}.self_attn.k_norm", d)
        w.linear(f"{p}.mlp.gate_proj", config["intermediate_size"], h)
        w.linear(f"{p}.mlp.up_proj", config["intermediate_size"], h)
        w.linear(f"{p}.mlp.down_proj", h, config["intermediate_size"])
        w.norm(f"{p}.input_layernorm", h)
        w.norm(f"{p}.post_attention_layernorm", h)
    return config, w


class Drafter:
    def __init__(self, config, values, embed, head):
        self.c, self.v, self.embed, self.head = config, values, embed.detach(), head.detach()
        self.inverse, self.amplitude = self.frequencies()

    def frequencies(self):
        d, base, scaling = self.c["head_dim"], self.c["rope_theta"], self.c["rope_scaling"]
        inverse = torch.tensor([base ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
        if scaling is None:
            return inverse, 1.0
        length = scaling["original_max_position_embeddings"]

        def dim_of(rotations):
            return d * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(base))

        low = max(math.floor(dim_of(scaling["beta_fast"])), 0)
        high = min(math.ceil(dim_of(scaling["beta_slow"])), d - 1)
        ramp = torch.tensor([min(max((i - low) / max(high - low, 1e-3), 0.0), 1.0) for i in range(d // 2)]).double()
        return inverse / scaling["factor"] * ramp + inverse * (1 - ramp), scaling["attention_factor"]

    def norm(self, x, name):
        eps = self.c["rms_norm_eps"]
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * self.v[f"{name}.weight"]

    def linear(self, x, name):
        return x @ self.v[f"{name}.weight"].T

    def rotate(self, x, positions):
        """x: [tokens, heads, head_dim], halves rotated against each other."""
        angle = positions.double()[:, None] * self.inverse[None]
        cos, sin = (self.amplitude * angle.cos())[:, None], (self.amplitude * angle.sin())[:, None]
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def block(self, layer_outputs, start, root):
        """Logits [block - 1, vocabulary] of the masked slots, from the features of positions [0, start)."""
        c = self.c
        ids = c["dflash_config"]["target_layer_ids"]
        features = torch.cat([layer_outputs[i][:start] for i in ids], -1)
        ctx = self.norm(self.linear(features, "fc"), "hidden_norm")
        tokens = torch.tensor([root] + [c["dflash_config"]["mask_token_id"]] * (c["block_size"] - 1))
        x = self.embed[tokens]
        at_ctx, at_block = torch.arange(start), start + torch.arange(c["block_size"])
        positions = torch.cat([at_ctx, at_block])
        d, heads, kv_heads = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
        for i in range(c["num_hidden_layers"]):
            a = f"layers.{i}.self_attn"
            h = self.norm(x, f"layers.{i}.input_layernorm")
            both = torch.cat([ctx, h])
            q = self.rotate(self.norm(self.linear(h, f"{a}.q_proj").view(-1, heads, d), f"{a}.q_norm"), at_block)
            k = self.rotate(self.norm(self.linear(both, f"{a}.k_proj").view(-1, kv_heads, d), f"{a}.k_norm"), positions)
            v = self.linear(both, f"{a}.v_proj").view(-1, kv_heads, d)
            hidden = torch.zeros(len(tokens), len(positions), dtype=torch.bool)
            if c["layer_types"][i] == "sliding_attention":
                # The window limits the context only, counted in positions from the query; the block sees itself whole.
                hidden[:, :start] = at_block[:, None] - at_ctx[None, :] >= c["sliding_window"]
            out = []
            for n in range(heads):
                group = n // (heads // kv_heads)
                scores = q[:, n] @ k[:, group].T / math.sqrt(d)
                scores[hidden] = float("-inf")
                out.append(torch.softmax(scores, -1) @ v[:, group])
            x = x + self.linear(torch.cat(out, -1), f"{a}.o_proj")
            h = self.norm(x, f"layers.{i}.post_attention_layernorm")
            gate = torch.nn.functional.silu(self.linear(h, f"layers.{i}.mlp.gate_proj"))
            x = x + self.linear(gate * self.linear(h, f"layers.{i}.mlp.up_proj"), f"layers.{i}.mlp.down_proj")
        return self.norm(x[1:], "norm") @ self.head.T
