"""Dropless mixture of experts: rows sorted by expert, groups padded to 8 rows, two grouped matrix products.

Permutation and combination are gathers in both directions (no atomic adds), so a step is reproducible.
"""

import torch
import torch.nn.functional as F

ALIGN = 8  # rows: the grouped product wants 16-byte aligned group starts in bf16


def route(x, weight, bias, top_k: int, scale: float):
    """fp32 sigmoid router with selection bias: weights [T, k] and expert ids [T, k]."""
    scores = torch.sigmoid(F.linear(x.float(), weight))
    ids = torch.topk(scores.detach() + bias, top_k, dim=-1, sorted=False).indices
    weights = scores.gather(1, ids)
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * scale
    return weights, ids


def plan(ids, experts: int):
    """Row layout: `dest` [T, k] row of each (token, choice), `token` [P] token of each row, group ends [E], counts [E].

    P = T·k + E·8 rows whatever the routing; rows that belong to nobody point at token 0 and carry weight 0.
    """
    tokens, k = ids.shape
    flat = ids.reshape(-1)
    order = torch.argsort(flat, stable=True)
    counts = torch.zeros(experts, dtype=torch.int32, device=ids.device).scatter_add_(0, flat, torch.ones_like(flat, dtype=torch.int32))
    padded = (counts + (ALIGN - 1)) // ALIGN * ALIGN
    ends = padded.cumsum(0)
    shift = (ends - padded) - (counts.cumsum(0) - counts)  # row = sorted position + shift of its expert
    row = torch.arange(tokens * k, device=ids.device) + shift[flat[order]]
    rows = tokens * k + experts * ALIGN
    token = torch.zeros(rows, dtype=torch.int64, device=ids.device).scatter(0, row, order // k)
    slot = torch.full((rows,), -1, dtype=torch.int64, device=ids.device).scatter(0, row, order)
    dest = torch.empty(tokens * k, dtype=torch.int64, device=ids.device).scatter(0, order, row).view(tokens, k)
    ends = torch.cat([ends[:-1], ends.new_full((1,), rows)]).to(torch.int32)  # the last expert takes the unused tail
    return dest, token, slot, ends, counts


class Permute(torch.autograd.Function):
    """[T, H] → [P, H] by `token`; the gradient gathers by `dest`."""

    @staticmethod
    def forward(ctx, x, token, dest):
        ctx.save_for_backward(dest)
        return x.index_select(0, token)

    @staticmethod
    def backward(ctx, grad):
        (dest,) = ctx.saved_tensors
        return grad.index_select(0, dest.reshape(-1)).view(*dest.shape, -1).sum(1), None, None


class Combine(torch.autograd.Function):
    """Σ_k weight·row[dest] → [T, H]; the gradient of the rows gathers by `token`."""

    @staticmethod
    def forward(ctx, rows, weights, dest, token, slot):
        ctx.save_for_backward(rows, weights, dest, token, slot)
        picked = rows.index_select(0, dest.reshape(-1)).view(*dest.shape, -1)
        return (picked.float() * weights.unsqueeze(-1)).sum(1).to(rows.dtype)

    @staticmethod
    def backward(ctx, grad):
        rows, weights, dest, token, slot = ctx.saved_tensors
        picked = rows.index_select(0, dest.reshape(-1)).view(*dest.shape, -1)
        d_weights = (picked.float() * grad.unsqueeze(1).float()).sum(-1)
        row_weight = torch.where(slot >= 0, weights.reshape(-1).index_select(0, slot.clamp(min=0)), 0.0)
        d_rows = (grad.index_select(0, token).float() * row_weight.unsqueeze(-1)).to(rows.dtype)
        return d_rows, d_weights, None, None, None


def grouped(rows, weight, ends):
    """rows [P, K] × weight [E, N, K] per group → [P, N]."""
    if rows.is_cuda:
        return torch._grouped_mm(rows, weight.transpose(-2, -1), offs=ends)
    parts, start = [], 0
    for e, end in enumerate(ends.tolist()):
        parts.append(F.linear(rows[start:end], weight[e]))
        start = end
    return torch.cat(parts)


def experts_forward(x, weights, ids, w13, w2):
    """Routed part of the layer: x [T, H], w13 [E, 2·I, H] (gate above up), w2 [E, H, I]. Also the counts by expert."""
    dest, token, slot, ends, counts = plan(ids, w13.shape[0])
    rows = Permute.apply(x, token, dest)
    gate, up = grouped(rows, w13, ends).chunk(2, dim=-1)
    rows = grouped((F.silu(gate.float()) * up).to(x.dtype), w2, ends)
    return Combine.apply(rows, weights, dest, token, slot), counts
