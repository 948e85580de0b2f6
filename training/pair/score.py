"""Held-out bits per byte."""

import math
from pathlib import Path

import torch
import torch.nn.functional as F

from .shape import BOS
from .stage import DOMAINS, stream


@torch.no_grad()
def bits_per_byte(model, tokens: Path, dev, limit: int | None = None, batch: int = 64) -> dict[str, float]:
    """By domain: windows of the training context, the second half scored; every token but `<|bos|>` counts, over the raw bytes."""
    context = min(model.s.context, 1024)
    half, out = context // 2, {}
    for domain in DOMAINS:
        ids = stream(tokens, "heldout", domain, dev)[0].long()
        size = len((tokens / f"heldout.{domain}.txt").read_bytes())
        if limit and len(ids) > limit:
            size, ids = size * limit / len(ids), ids[:limit]
        padded = torch.cat((ids.new_full((half,), BOS), ids, ids.new_zeros(half)))
        starts = list(range(0, len(ids), half))
        nats = 0.0
        for i in range(0, len(starts), batch):
            rows = torch.stack([padded[s : s + context] for s in starts[i : i + batch]])
            inputs = rows.clone()
            x, _, _ = model.hidden(inputs)
            logits = model.logits(x[:, half - 1 : -1])
            labels = rows[:, half:]
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
            for j, s in enumerate(starts[i : i + batch]):
                valid = min(half, len(ids) - s)
                nats += loss[j, :valid][labels[j, :valid] != BOS].sum().item()
        out[domain] = nats / math.log(2) / size
    return out
