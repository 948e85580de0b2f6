"""Sequences that the drafters learn from: 75 % written by the target, 25 % training text."""

import numpy as np
import torch

from .stage import DOMAINS, stream


def sequences(tokens_folder, onpolicy, length: int, seed: int, share: float = 0.25):
    """Padded tokens [N, length] int64, first position that may be learnt [N], ends [N] (on the CPU).

    On-policy rows learn after their prompt. Text rows are document beginnings, learnt from position 4.
    """
    saved = torch.load(onpolicy)
    rows, first, ends = [saved["tokens"].long()[:, :length]], [saved["lengths"].long()], [saved["ends"].long().clamp(max=length)]
    want = int((ends[0] - first[0]).sum() * share / (1 - share))
    rng = np.random.default_rng(seed)
    mix = {"code": 0.42, "docs": 0.2, "prose": 0.28, "maths": 0.1}
    for domain in DOMAINS:
        tokens, offsets = stream(tokens_folder, "train", domain, "cpu")
        sizes = np.minimum(offsets[1:] - offsets[:-1], length)
        order = rng.permutation(len(sizes))
        starts, used = [], 0
        while used < want * mix[domain]:  # short domains repeat, from another place of each document
            for i in order:
                lo = offsets[i] if len(starts) < len(order) else rng.integers(offsets[i], max(offsets[i] + 1, offsets[i + 1] - length))
                starts.append((lo, min(length, offsets[i + 1] - lo)))
                used += starts[-1][1]
                if used >= want * mix[domain]:
                    break
        block = torch.zeros(len(starts), length, dtype=torch.int64)
        for row, (lo, n) in zip(block, starts, strict=True):
            row[:n] = tokens[lo : lo + n]
        rows.append(block)
        ends.append(torch.tensor([n for _, n in starts]))
        first.append(torch.full((len(starts),), 4))
    rows, first, ends = torch.cat(rows), torch.cat(first), torch.cat(ends)
    good = ends - first >= 8
    return rows[good], first[good], ends[good]
