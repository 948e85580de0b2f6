"""What every stage shares: clock-driven progress, log file, token streams, checkpoints."""

import json
import os
import time
from pathlib import Path

import numpy as np
import torch

DOMAINS = ("code", "docs", "prose", "maths")


class Clock:
    """Progress 0…1 of a stage by wall clock, so that a stage always ends on time; `steps` caps it for smoke tests."""

    def __init__(self, seconds: float, steps: int | None = None):
        self.seconds, self.steps, self.start, self.count = seconds, steps, time.monotonic(), 0

    def tick(self) -> float:
        self.count += 1
        return self.progress()

    def progress(self) -> float:
        done = (time.monotonic() - self.start) / self.seconds
        return max(done, self.count / self.steps) if self.steps else done

    def elapsed(self) -> float:
        return time.monotonic() - self.start


class Log:
    """JSON lines to a file and to the terminal."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open("w")

    def __call__(self, **fields):
        line = json.dumps({k: round(v, 5) if isinstance(v, float) else v for k, v in fields.items()})
        print(line, flush=True)
        self.file.write(line + "\n")
        self.file.flush()


def device() -> torch.device:
    torch.backends.cuda.matmul.allow_tf32 = True
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def compiled(function):
    """torch.compile on a GPU, the plain function elsewhere."""
    return torch.compile(function, dynamic=False) if torch.cuda.is_available() and not os.environ.get("EAGER") else function


def stream(folder: Path, split: str, domain: str, dev):
    """Tokens (int32, on the device) and document offsets (NumPy)."""
    tokens = torch.from_numpy(np.load(folder / f"{split}.{domain}.npy").astype(np.int32)).to(dev)
    return tokens, np.load(folder / f"{split}.{domain}.offsets.npy")


class Windows:
    """Windows of `length` tokens over the training streams, every epoch in a new order and phase; domain `repeat`s per epoch."""

    def __init__(self, folder: Path, length: int, repeat: dict[str, float], dev, seed: int):
        parts = [stream(folder, "train", d, dev)[0] for d in DOMAINS]
        self.tokens, self.length, self.dev = torch.cat(parts), length, dev
        self.base = np.cumsum([0] + [len(p) for p in parts])
        self.repeat = [repeat[d] for d in DOMAINS]
        self.rng = np.random.default_rng(seed)
        self.epochs, self.queue = 0, torch.empty(0, dtype=torch.int64)

    def _epoch(self):
        starts = []
        for i, repeat in enumerate(self.repeat):
            lo, hi = self.base[i], self.base[i + 1]
            part = []
            for _ in range(int(np.ceil(repeat))):
                part.append(np.arange(lo + self.rng.integers(self.length), hi - self.length - 1, self.length))
            part = np.concatenate(part)
            self.rng.shuffle(part)
            starts.append(part[: int(len(part) * repeat / np.ceil(repeat))])
        starts = np.concatenate(starts)
        self.rng.shuffle(starts)
        self.epochs += 1
        return torch.from_numpy(starts)

    def batch(self, size: int):
        """Inputs and labels [size, length], int64."""
        while len(self.queue) < size:
            self.queue = torch.cat((self.queue, self._epoch()))
        starts, self.queue = self.queue[:size], self.queue[size:]
        span = torch.arange(self.length + 1, device=self.dev)
        ids = self.tokens[starts.to(self.dev).unsqueeze(1) + span].long()
        return ids[:, :-1], ids[:, 1:]
