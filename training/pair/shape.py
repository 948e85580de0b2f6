"""Shapes of the three models and the special token ids: one place, used by training and by export."""

from dataclasses import dataclass, field

BOS, EOS, PAD, MASK = 0, 1, 2, 3
VOCAB = 8192


@dataclass(frozen=True)
class TargetShape:
    """DeepSeek-V3 / Kimi K2 architecture at toy size."""

    vocab: int = VOCAB
    hidden: int = 320
    layers: int = 7
    dense_layers: int = 1
    dense_inter: int = 640
    experts: int = 128
    top_k: int = 4
    moe_inter: int = 32
    shared: int = 1
    routed_scale: float = 2.5
    heads: int = 8
    q_lora: int = 128
    kv_lora: int = 128
    nope: int = 32
    rope: int = 16
    v_dim: int = 32
    theta: float = 10000.0
    eps: float = 1e-6
    context: int = 1024


@dataclass(frozen=True)
class DFlashShape:
    """Block-diffusion drafter over the target's hidden size."""

    hidden: int = 320
    layers: int = 3
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 64
    inter: int = 640
    block: int = 8
    target_layers: tuple[int, ...] = field(default=(1, 3, 5))
    theta: float = 10000.0
    eps: float = 1e-6
    context: int = 1024


@dataclass(frozen=True)
class ArShape:
    """Small llama with its own tied embedding."""

    vocab: int = VOCAB
    hidden: int = 128
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    inter: int = 256
    theta: float = 10000.0
    eps: float = 1e-6
    context: int = 1024


TINY_TARGET = TargetShape(vocab=VOCAB, hidden=64, layers=3, dense_inter=96, experts=8, top_k=2, q_lora=32, kv_lora=32, nope=16, rope=8, v_dim=16, heads=4, context=128)
TINY_DFLASH = DFlashShape(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, inter=96, target_layers=(0, 1, 2), context=128)
TINY_AR = ArShape(hidden=32, layers=1, heads=2, kv_heads=1, head_dim=16, inter=64, context=128)
