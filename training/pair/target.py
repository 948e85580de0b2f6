"""The target: DeepSeek-V3 (Kimi K2) with multi-head latent attention and a routed mixture of experts."""

import torch
import torch.nn.functional as F
from torch import nn

from .moe import experts_forward, route
from .shape import TargetShape


def rms(x, weight, eps: float):
    """RMSNorm in fp32, weight applied after the cast back (as transformers does)."""
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)
    return weight * y.to(x.dtype)


def rope_table(positions, dim: int, theta: float):
    """cos and sin [S, dim/2]."""
    inverse = theta ** (-torch.arange(0, dim, 2, device=positions.device, dtype=torch.float32) / dim)
    angle = positions.float().unsqueeze(-1) * inverse
    return angle.cos(), angle.sin()


def rotate_pairs(x, cos, sin):
    """Interleaved rotary embedding: pairs (2i, 2i+1) turn together."""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


def _matrix(rows: int, cols: int, gain: float = 1.0) -> nn.Parameter:
    return nn.Parameter(torch.randn(rows, cols) * gain * cols**-0.5)


class Attention(nn.Module):
    """Multi-head latent attention, keys and values expanded (training) or absorbed (decoding)."""

    def __init__(self, s: TargetShape):
        super().__init__()
        self.s = s
        self.q_a, self.q_b = _matrix(s.q_lora, s.hidden), _matrix(s.heads * (s.nope + s.rope), s.q_lora)
        self.kv_a, self.kv_b = _matrix(s.kv_lora + s.rope, s.hidden), _matrix(s.heads * (s.nope + s.v_dim), s.kv_lora)
        self.o = _matrix(s.hidden, s.heads * s.v_dim, 0.5)
        self.q_norm, self.kv_norm = nn.Parameter(torch.ones(s.q_lora)), nn.Parameter(torch.ones(s.kv_lora))

    def queries(self, h, cos, sin):
        """No-rope and rotated query parts, [..., heads, dim]; cos and sin [..., 1, dim/2]."""
        s = self.s
        q = F.linear(rms(F.linear(h, self.q_a), self.q_norm, s.eps), self.q_b).unflatten(-1, (s.heads, s.nope + s.rope))
        nope, rope = q.split((s.nope, s.rope), -1)
        return nope, rotate_pairs(rope, cos, sin)

    def latent(self, h, cos, sin):
        """Normed latent and rotated shared key."""
        c, k = F.linear(h, self.kv_a).split((self.s.kv_lora, self.s.rope), -1)
        return rms(c, self.kv_norm, self.s.eps), rotate_pairs(k, cos, sin)

    def forward(self, h, cos, sin):
        s = self.s
        b, n, _ = h.shape
        q_nope, q_rope = self.queries(h, cos.unsqueeze(1), sin.unsqueeze(1))
        c, k_rope = self.latent(h, cos, sin)
        k_nope, v = F.linear(c, self.kv_b).unflatten(-1, (s.heads, s.nope + s.v_dim)).split((s.nope, s.v_dim), -1)
        q = torch.cat((q_nope, q_rope), -1).transpose(1, 2)
        k = torch.cat((k_nope, k_rope.unsqueeze(2).expand(b, n, s.heads, s.rope)), -1).transpose(1, 2)
        v = F.pad(v, (0, s.nope + s.rope - s.v_dim)).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)[..., : s.v_dim]
        return F.linear(out.transpose(1, 2).reshape(b, n, s.heads * s.v_dim), self.o)

    def decode(self, h, cos, sin, cache, position, visible):
        """One token a row: h [B, H], cache [B, S, kv_lora + rope], written at `position`; `visible` [S] marks past and self."""
        s = self.s
        q_nope, q_rope = self.queries(h, cos, sin)
        cache.index_copy_(1, position, torch.cat(self.latent(h, cos, sin), -1).unsqueeze(1))
        up_k, up_v = self.kv_b.unflatten(0, (s.heads, s.nope + s.v_dim)).split((s.nope, s.v_dim), 1)
        q = torch.cat((torch.einsum("bhn,hnr->bhr", q_nope, up_k), q_rope), -1)
        scores = torch.matmul(q, cache.transpose(1, 2)).float() * (s.nope + s.rope) ** -0.5
        weights = scores.masked_fill(~visible, float("-inf")).softmax(-1).to(h.dtype)
        out = torch.einsum("bhr,hvr->bhv", torch.matmul(weights, cache[..., : s.kv_lora]), up_v)
        return F.linear(out.flatten(1), self.o)


class Dense(nn.Module):
    """SwiGLU; also the shared expert."""

    def __init__(self, hidden: int, inter: int):
        super().__init__()
        self.gate, self.up, self.down = _matrix(inter, hidden), _matrix(inter, hidden), _matrix(hidden, inter, 0.5)

    def forward(self, h):
        return F.linear(F.silu(F.linear(h, self.gate)) * F.linear(h, self.up), self.down)


class Moe(nn.Module):
    """Routed experts beside one shared expert."""

    def __init__(self, s: TargetShape):
        super().__init__()
        self.s = s
        self.router = _matrix(s.experts, s.hidden)
        self.register_buffer("bias", torch.zeros(s.experts))
        self.w13 = nn.Parameter(torch.randn(s.experts, 2 * s.moe_inter, s.hidden) * s.hidden**-0.5)
        self.w2 = nn.Parameter(torch.randn(s.experts, s.hidden, s.moe_inter) * 0.5 * s.moe_inter**-0.5)
        self.shared = Dense(s.hidden, s.moe_inter * s.shared)

    def forward(self, h):
        x = h.reshape(-1, h.shape[-1])
        weights, ids = route(x, self.router, self.bias, self.s.top_k, self.s.routed_scale)
        y, counts = experts_forward(x, weights, ids, self.w13, self.w2)
        return y.view_as(h) + self.shared(h), counts


class Block(nn.Module):
    """Attention and feed-forward with pre-norms."""

    def __init__(self, s: TargetShape, dense: bool):
        super().__init__()
        self.s, self.dense = s, dense
        self.norm1, self.norm2 = nn.Parameter(torch.ones(s.hidden)), nn.Parameter(torch.ones(s.hidden))
        self.attn = Attention(s)
        self.mlp = Dense(s.hidden, s.dense_inter) if dense else Moe(s)

    def feed(self, x):
        h = rms(x, self.norm2, self.s.eps)
        if self.dense:
            return x + self.mlp(h), None
        y, counts = self.mlp(h)
        return x + y, counts

    def forward(self, x, cos, sin):
        """x [B, S, H] → the layer's output and the routed rows by expert (None for the dense layer)."""
        return self.feed(x + self.attn(rms(x, self.norm1, self.s.eps), cos, sin))


class Target(nn.Module):
    """Embedding, blocks, final norm; the LM head is the embedding."""

    def __init__(self, s: TargetShape):
        super().__init__()
        self.s = s
        self.embed = nn.Parameter(torch.randn(s.vocab, s.hidden) * 0.02)
        self.blocks = nn.ModuleList(Block(s, i < s.dense_layers) for i in range(s.layers))
        self.norm = nn.Parameter(torch.ones(s.hidden))

    def hidden(self, ids, keep=()):
        """Final hidden state (before the last norm), counts by MoE layer, and the outputs of the layers in `keep`."""
        cos, sin = rope_table(torch.arange(ids.shape[1], device=ids.device), self.s.rope, self.s.theta)
        x, counts, kept = F.embedding(ids, self.embed), [], []
        for i, block in enumerate(self.blocks):
            x, c = block(x, cos, sin)
            if c is not None:
                counts.append(c)
            if i in keep:
                kept.append(x)
        return x, counts, kept

    def logits(self, x):
        """fp32 logits of hidden states."""
        return F.linear(rms(x, self.norm, self.s.eps), self.embed).float()

    def loss(self, x, labels):
        """Mean cross-entropy of hidden states [B, S, H] against labels [B, S]."""
        return F.cross_entropy(self.logits(x).flatten(0, 1), labels.flatten())


def live_type(device) -> torch.dtype:
    """bf16 on a GPU; fp32 on a CPU, where bf16 products are slow (smoke tests)."""
    return torch.bfloat16 if torch.device(device).type == "cuda" else torch.float32


def to_live(model: nn.Module) -> nn.Module:
    """Weights of the forward pass in `live_type`; the router stays fp32."""
    for name, p in model.named_parameters():
        if not name.endswith("router"):
            p.data = p.data.to(live_type(p.device))
    return model
