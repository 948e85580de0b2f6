"""DFlash block-diffusion drafter (arXiv 2602.06036): one non-causal pass over `[anchor, MASK × (block − 1)]`."""

import torch
import torch.nn.functional as F
from torch import nn

from .shape import MASK, DFlashShape
from .target import Dense, _matrix, rms, rope_table


def rotate_half(x, cos, sin):
    """Half-split rotary embedding: element i turns with i + dim/2; cos and sin [..., dim/2]."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class DraftBlock(nn.Module):
    """Attention over [context ‖ block] and SwiGLU."""

    def __init__(self, s: DFlashShape):
        super().__init__()
        self.s = s
        self.q, self.o = _matrix(s.heads * s.head_dim, s.hidden), _matrix(s.hidden, s.heads * s.head_dim, 0.5)
        self.k, self.v = _matrix(s.kv_heads * s.head_dim, s.hidden), _matrix(s.kv_heads * s.head_dim, s.hidden)
        self.q_norm, self.k_norm = nn.Parameter(torch.ones(s.head_dim)), nn.Parameter(torch.ones(s.head_dim))
        self.norm1, self.norm2 = nn.Parameter(torch.ones(s.hidden)), nn.Parameter(torch.ones(s.hidden))
        self.mlp = Dense(s.hidden, s.inter)

    def forward(self, x, ctx, cos_q, sin_q, cos_k, sin_k, mask):
        """x [B, Q, H] block rows, ctx [B, S, H]; tables [B, rows, 1, dim/2]; mask [B, 1, Q, S + Q] additive."""
        s = self.s
        h = rms(x, self.norm1, s.eps)
        both = torch.cat((ctx, h), 1)
        q = rotate_half(rms(F.linear(h, self.q).unflatten(-1, (s.heads, s.head_dim)), self.q_norm, s.eps), cos_q, sin_q)
        k = rotate_half(rms(F.linear(both, self.k).unflatten(-1, (s.kv_heads, s.head_dim)), self.k_norm, s.eps), cos_k, sin_k)
        v = F.linear(both, self.v).unflatten(-1, (s.kv_heads, s.head_dim))
        group = s.heads // s.kv_heads
        q, k, v = q.transpose(1, 2), k.transpose(1, 2).repeat_interleave(group, 1), v.transpose(1, 2).repeat_interleave(group, 1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + F.linear(out.transpose(1, 2).flatten(2), self.o)
        return x + self.mlp(rms(x, self.norm2, s.eps))


class DFlash(nn.Module):
    """Drafter without embedding or head: both are the target's, frozen."""

    def __init__(self, s: DFlashShape):
        super().__init__()
        self.s = s
        self.fc = _matrix(s.hidden, s.hidden * len(s.target_layers))
        self.hidden_norm, self.norm = nn.Parameter(torch.ones(s.hidden)), nn.Parameter(torch.ones(s.hidden))
        self.blocks = nn.ModuleList(DraftBlock(s) for _ in range(s.layers))

    def forward(self, embed, features, anchors, tokens):
        """Logits-ready hidden states of the masked slots, [B, A, block − 1, H].

        embed [V, H]; features [B, S, 3H] of the sequence; anchors [B, A] positions; tokens [B, A] the token at each anchor.
        A block sees the features strictly before its anchor and itself.
        """
        s = self.s
        b, n, _ = features.shape
        a = anchors.shape[1]
        slots = torch.arange(s.block, device=anchors.device)
        ids = torch.where(slots == 0, tokens.unsqueeze(-1), MASK)
        x = F.embedding(ids.flatten(1), embed)
        ctx = rms(F.linear(features, self.fc), self.hidden_norm, s.eps)
        past = torch.arange(n, device=anchors.device)
        position = (anchors.unsqueeze(-1) + slots).flatten(1)
        cos_q, sin_q = (t.unsqueeze(2) for t in rope_table(position, s.head_dim, s.theta))
        cos_k, sin_k = (t.unsqueeze(2) for t in rope_table(torch.cat((past.expand(b, n), position), 1), s.head_dim, s.theta))
        see_past = (past < anchors.unsqueeze(-1)).repeat_interleave(s.block, 1)
        block = torch.arange(a, device=anchors.device).repeat_interleave(s.block)
        see_block = (block.unsqueeze(1) == block).expand(b, -1, -1)
        mask = torch.zeros(b, a * s.block, n + a * s.block, dtype=x.dtype, device=x.device)
        mask = mask.masked_fill(~torch.cat((see_past, see_block), -1), float("-inf")).unsqueeze(1)
        for layer in self.blocks:
            x = layer(x, ctx, cos_q, sin_q, cos_k, sin_k, mask)
        x = x.unflatten(1, (a, s.block))[:, :, 1:]
        return rms(x, self.norm, s.eps)


def draft_loss(x, embed, labels, weights):
    """Weighted mean cross-entropy; x [B, A, K, H], labels and weights [B, A, K]. Also the rank-0 hits by slot."""
    logits = F.linear(x, embed).float()
    loss = F.cross_entropy(logits.flatten(0, 2), labels.flatten(), reduction="none").view_as(labels)
    hits = ((logits.argmax(-1) == labels) & (weights > 0)).float().sum((0, 1))
    return (loss * weights).sum() / weights.sum(), hits
