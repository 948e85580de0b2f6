"""Muon for matrices, AdamW for the rest, over fp32 masters of bf16 live weights.

After each step the live weights are copied from the masters; in the last part of the target's training the copy of the
routed experts is fake-quantised, so the forward pass sees the INT4 model while the masters keep the full gradient
(straight-through).
"""

import torch

from .quant import fake_quantise

NS = (3.4445, -4.7750, 2.0315)


def orthogonalise(g, steps: int = 5):
    """Newton–Schulz iteration on a batch of matrices [n, r, c] in bf16."""
    x = g.to(torch.bfloat16)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.transpose(-2, -1)
    x = x / (x.float().norm(dim=(-2, -1), keepdim=True) + 1e-7).to(x.dtype)
    for _ in range(steps):
        a = x @ x.transpose(-2, -1)
        b = torch.baddbmm(a, a, a, beta=NS[1], alpha=NS[2])
        x = torch.baddbmm(x, b, x, beta=NS[0], alpha=1.0)
    return x.transpose(-2, -1) if tall else x


class Group:
    """Matrices of one shape, stacked [n, r, c]."""

    def __init__(self, live, shape, quant: bool):
        self.live, self.shape, self.quant = live, shape, quant
        self.master = torch.cat([p.detach().float().reshape(-1, *shape) for p in live])
        self.momentum = torch.zeros_like(self.master)

    def step(self, lr: float, momentum: float, decay: float):
        g = torch.cat([p.grad.reshape(-1, *self.shape) for p in self.live]).float()
        self.momentum.lerp_(g, 1 - momentum)
        update = orthogonalise(g.lerp(self.momentum, momentum))
        self.master.mul_(1 - lr * decay).add_(update.float(), alpha=-lr * 0.2 * max(self.shape) ** 0.5)

    def publish(self, quantised: bool):
        value = fake_quantise(self.master) if quantised and self.quant else self.master
        start = 0
        for p in self.live:
            n = p.numel() // (self.shape[0] * self.shape[1])
            p.data.copy_(value[start : start + n].reshape(p.shape))
            start += n


class Optimiser:
    """`step(progress)` → one update; `matrix(name, p)` gives the stacked matrix shape or None for AdamW."""

    def __init__(self, model, matrix, lr: float, adam_lr: float, decay: float = 0.1, momentum: float = 0.95, quantise=lambda name: False):
        self.lr, self.adam_lr, self.decay, self.momentum, self.count = lr, adam_lr, decay, momentum, 0
        by_shape, self.adam, self.adam_names = {}, [], []
        for name, p in model.named_parameters():
            shape = matrix(name, p)
            if shape is None:
                self.adam.append(p)
                self.adam_names.append(name)
            else:
                by_shape.setdefault((shape, quantise(name)), []).append(p)
        self.groups = [Group(live, shape, q) for (shape, q), live in by_shape.items()]
        self.adam_master = [p.detach().float().clone() for p in self.adam]
        self.m = [torch.zeros_like(p) for p in self.adam_master]
        self.v = [torch.zeros_like(p) for p in self.adam_master]
        self.params = [p for g in self.groups for p in g.live] + self.adam

    @torch.no_grad()
    def step(self, factor: float, quantised: bool = False):
        """One update with the learning rates times `factor`; momentum is warmed over the first 300 steps."""
        self.count += 1
        momentum = min(self.momentum, 0.85 + 0.10 * self.count / 300)
        for g in self.groups:
            g.step(self.lr * factor, momentum, self.decay)
        grads = [p.grad.float() for p in self.adam]
        torch._foreach_lerp_(self.m, grads, 0.1)
        torch._foreach_mul_(self.v, 0.98)
        torch._foreach_addcmul_(self.v, grads, grads, 0.02)
        c1, c2 = 1 - 0.9**self.count, 1 - 0.98**self.count
        denominators = torch._foreach_div(self.v, c2)
        torch._foreach_sqrt_(denominators)
        torch._foreach_add_(denominators, 1e-10)
        torch._foreach_addcdiv_(self.adam_master, self.m, denominators, -self.adam_lr * factor / c1)
        self.publish(quantised)
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def publish(self, quantised: bool = False):
        """Copy masters to live weights; everything that the checkpoint stores in bf16 is rounded to bf16 when `quantised`."""
        for g in self.groups:
            g.publish(quantised)
        for p, master in zip(self.adam, self.adam_master, strict=True):
            p.data.copy_(master.to(torch.bfloat16) if quantised else master)


def last_two(name, p):
    """Default rule: 2-D weights are Muon's, except embeddings and routers."""
    if p.dim() == 2 and not any(k in name for k in ("embed", "router")):
        return tuple(p.shape)
    return None


def target_matrix(name, p):
    """As `last_two`, with the experts' gate and up matrices orthogonalised apart."""
    if name.endswith("w13"):
        return (p.shape[1] // 2, p.shape[2])
    if name.endswith("w2"):
        return tuple(p.shape[1:])
    return last_two(name, p)


def decayed(progress: float, start: float = 0.35, warm: float = 0.02) -> float:
    """Warm-up, plateau, then linear to zero at progress 1."""
    if progress < warm:
        return progress / warm
    return 1.0 if progress < start else max(0.0, (1.0 - progress) / (1.0 - start))
