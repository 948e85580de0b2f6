"""INT4 symmetric, group 32 along the input, as compressed-tensors `pack-quantized` stores it."""

import torch

GROUP = 32


def quantise(weight):
    """Weight [..., in] → q int8 in [-8, 7] [..., in] and bf16 scale [..., in/32]; scale = max|w| / 7."""
    groups = weight.float().unflatten(-1, (-1, GROUP))
    scale = (groups.abs().amax(-1) / 7).clamp(min=1e-8).to(torch.bfloat16)
    q = torch.round(groups / scale.float().unsqueeze(-1)).clamp(-8, 7)
    return q.flatten(-2).to(torch.int8), scale


def dequantise(q, scale, dtype=torch.float32):
    """q·scale, product taken in fp32."""
    return (q.unflatten(-1, (-1, GROUP)).float() * scale.float().unsqueeze(-1)).flatten(-2).to(dtype)


def fake_quantise(weight):
    """The fp32 values that the INT4 checkpoint will hold."""
    return dequantise(*quantise(weight))


def pack(q):
    """q [out, in] → int32 [out, in/8]: nibbles of q + 8, lowest first."""
    nibbles = (q.to(torch.int64) + 8).unflatten(-1, (-1, 8))
    packed = (nibbles << (4 * torch.arange(8, device=q.device))).sum(-1)
    return torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)


def unpack(packed):
    """Inverse of `pack`."""
    values = packed.to(torch.int64).unsqueeze(-1) >> (4 * torch.arange(8, device=packed.device))
    return ((values & 15) - 8).flatten(-2).to(torch.int8)
