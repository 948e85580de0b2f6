"""What the parity scripts share: seeded weights, the published tensor layout, trees and their masks."""

import json
import math
import pathlib

import torch
from safetensors.torch import save_file

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "backend-cpu" / "tests" / "fixtures"


class Weights:
    """A state dict in the layout that Hugging Face publishes: one tensor per expert, linear as [out, in].

    Every value is rounded to bf16 first, so the file (bf16) and the reference (float64) hold the same numbers.
    """

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.tensors = {}  # name -> what is written
        self.values = {}  # name -> what the reference uses, float64

    def normal(self, name, *shape, std=None, mean=0.0, f32=False):
        std = 1.0 / math.sqrt(shape[-1]) if std is None else std
        value = torch.randn(*shape, generator=self.gen) * std + mean
        value = value if f32 else value.to(torch.bfloat16)
        self.tensors[name] = value.clone()
        self.values[name] = value.to(torch.float64)

    def linear(self, name, out, inp, std=None):
        self.normal(f"{name}.weight", out, inp, std=std)

    def norm(self, name, size):
        self.normal(f"{name}.weight", size, std=0.1, mean=1.0)

    def int4(self, name, out, inp, group=32):
        """compressed-tensors pack-quantized: symmetric INT4, value = (nibble - 8) * scale, low nibble first."""
        value = torch.randn(out, inp, generator=self.gen) / math.sqrt(inp)
        groups = value.view(out, inp // group, group)
        scale = (groups.abs().amax(-1) / 7.0).to(torch.bfloat16)
        q = torch.clamp(torch.round(groups / scale.float()[..., None]), -8, 7).to(torch.int64)
        nibbles = (q.view(out, inp // 8, 8) + 8) << (4 * torch.arange(8))
        packed = nibbles.sum(-1)
        packed = torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)
        self.tensors[f"{name}.weight_packed"] = packed
        self.tensors[f"{name}.weight_scale"] = scale
        self.tensors[f"{name}.weight_shape"] = torch.tensor([out, inp], dtype=torch.int32)
        self.values[f"{name}.weight"] = (q.double() * scale.double()[..., None]).view(out, inp)

    def save(self, folder, config, prefix=""):
        folder.mkdir(parents=True, exist_ok=True)
        save_file({prefix + k: v.contiguous() for k, v in self.tensors.items()}, folder / "model.safetensors",
                  metadata={"format": "pt"})
        (folder / "model.safetensors").chmod(0o644)
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def chain(n):
    """Parents of a root and a chain of n."""
    return [-1] + list(range(n))


def random_tree(n, seed, width):
    """n nodes below the root, each under one of the `width` newest rows, so that depth and siblings both occur."""
    gen = torch.Generator().manual_seed(seed)
    parents = [-1]
    for i in range(1, n + 1):
        low = max(0, i - width)
        parents.append(int(torch.randint(low, i, (1,), generator=gen)))
    return parents


def comb(n):
    """A root with n children: siblings only."""
    return [-1] + [0] * n


def depths(parents):
    out = []
    for p in parents:
        out.append(0 if p < 0 else out[p] + 1)
    return out


def tree_layout(start, parents):
    """Positions and the set of visible keys of prefix + tree rows, straight from the definition."""
    d = depths(parents)
    total = start + len(parents)
    positions = list(range(start)) + [start + x for x in d]
    seen = torch.zeros(total, total, dtype=torch.bool)
    for i in range(start):
        seen[i, : i + 1] = True
    for i in range(len(parents)):
        seen[start + i, :start] = True
        node = i
        while node >= 0:
            seen[start + i, start + node] = True
            node = parents[node]
    return torch.tensor(positions), seen


def within_window(seen, positions, window):
    """A sliding window limits the distance in *positions*."""
    return seen & (positions[:, None] - positions[None, :] < window)


def additive(seen):
    mask = torch.zeros(seen.shape, dtype=torch.float64)
    mask[~seen] = float("-inf")
    return mask[None, None]
