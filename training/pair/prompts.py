"""Beginnings of training documents as generation prompts."""

import numpy as np
import torch

from .shape import BOS, PAD
from .stage import DOMAINS, stream

SHARE = {"code": 0.34, "docs": 0.17, "prose": 0.24, "maths": 0.25}
LONGEST = 128


class Prompts:
    """Draws prompts of 8–128 tokens; half of those that are not maths start inside their document."""

    def __init__(self, folder, seed: int):
        self.streams = {d: stream(folder, "train", d, "cpu") for d in DOMAINS}
        self.rng = np.random.default_rng(seed)

    def one(self) -> np.ndarray:
        r = self.rng
        domain = r.choice(DOMAINS, p=[SHARE[d] for d in DOMAINS])
        tokens, offsets = self.streams[domain]
        i = r.integers(len(offsets) - 1)
        lo, hi = int(offsets[i]) + 1, int(offsets[i + 1]) - 1  # without bos and eos
        want = int(r.integers(8, LONGEST))
        if domain == "maths":
            want = min(want, max(4, int((hi - lo) * r.uniform(0.15, 0.7))))
        elif r.random() < 0.5 and hi - lo > 2 * LONGEST:
            lo = int(r.integers(lo, hi - LONGEST))
        return np.concatenate(([BOS], tokens[lo : min(lo + want, hi)].numpy()))

    def batch(self, rows: int):
        """Prompts [R, 128] padded, lengths [R], temperatures [R]: 1/8 greedy, 3/8 T = 0.7, 1/2 T = 1."""
        parts = [self.one() for _ in range(rows)]
        out = np.full((rows, LONGEST + 1), PAD, dtype=np.int64)
        for row, p in zip(out, parts, strict=True):
            row[: len(p)] = p
        heat = self.rng.choice([0.0, 0.7, 1.0], size=rows, p=[1 / 8, 3 / 8, 1 / 2]).astype(np.float32)
        return torch.from_numpy(out), torch.tensor([len(p) for p in parts]), torch.from_numpy(heat)
