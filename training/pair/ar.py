"""Small llama: grouped-query attention, rotary embedding over the whole head (half-split), SwiGLU, tied embedding."""

import torch
import torch.nn.functional as F
from torch import nn

from .dflash import rotate_half
from .shape import ArShape
from .target import Dense, _matrix, rms, rope_table


class ArBlock(nn.Module):
    """One causal layer."""

    def __init__(self, s: ArShape):
        super().__init__()
        self.s = s
        self.q, self.o = _matrix(s.heads * s.head_dim, s.hidden), _matrix(s.hidden, s.heads * s.head_dim, 0.5)
        self.k, self.v = _matrix(s.kv_heads * s.head_dim, s.hidden), _matrix(s.kv_heads * s.head_dim, s.hidden)
        self.norm1, self.norm2 = nn.Parameter(torch.ones(s.hidden)), nn.Parameter(torch.ones(s.hidden))
        self.mlp = Dense(s.hidden, s.inter)

    def forward(self, x, cos, sin):
        s = self.s
        h = rms(x, self.norm1, s.eps)
        q = rotate_half(F.linear(h, self.q).unflatten(-1, (s.heads, s.head_dim)), cos, sin)
        k = rotate_half(F.linear(h, self.k).unflatten(-1, (s.kv_heads, s.head_dim)), cos, sin)
        v = F.linear(h, self.v).unflatten(-1, (s.kv_heads, s.head_dim))
        group = s.heads // s.kv_heads
        q, k, v = q.transpose(1, 2), k.transpose(1, 2).repeat_interleave(group, 1), v.transpose(1, 2).repeat_interleave(group, 1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.linear(out.transpose(1, 2).flatten(2), self.o)
        return x + self.mlp(rms(x, self.norm2, s.eps))


class Ar(nn.Module):
    """The autoregressive drafter."""

    def __init__(self, s: ArShape):
        super().__init__()
        self.s = s
        self.embed = nn.Parameter(torch.randn(s.vocab, s.hidden) * 0.02)
        self.blocks = nn.ModuleList(ArBlock(s) for _ in range(s.layers))
        self.norm = nn.Parameter(torch.ones(s.hidden))

    def forward(self, ids):
        """fp32 logits [B, S, V]."""
        cos, sin = rope_table(torch.arange(ids.shape[1], device=ids.device), self.s.head_dim, self.s.theta)
        x = F.embedding(ids, self.embed)
        for block in self.blocks:
            x = block(x, cos.unsqueeze(1), sin.unsqueeze(1))
        return F.linear(rms(x, self.norm, self.s.eps), self.embed).float()

    def loss(self, ids, labels, weights):
        """Mean cross-entropy over the positions with weight 1."""
        loss = F.cross_entropy(self(ids).flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
        return (loss * weights).sum() / weights.sum()
