"""Stage 9: the exported files against `transformers`, on a CPU.

    python3 check_export.py --models ../experiments/models

The target's INT4 experts are dequantised here, loaded into transformers' DeepseekV3ForCausalLM in fp32, and its logits
compared with this recipe's own model holding the same weights; likewise the llama drafter. Fails above a relative error of 1e-4.
"""

import argparse
from pathlib import Path

import torch

from pair.load import dense, fill_ar, fill_target, read


def target_reference(config, w):
    """transformers' model of the same weights (its experts are stacked)."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    plain = {k: v for k, v in config.items() if k not in ("quantization_config", "model_type", "architectures", "dtype", "torch_dtype", "rope_scaling", "rope_theta")}
    plain["rope_parameters"] = {"rope_type": "default", "rope_theta": config["rope_theta"]}
    model = DeepseekV3ForCausalLM(DeepseekV3Config(**plain, attn_implementation="eager")).float().eval()
    state = {k: v for k, v in w.items() if ".experts." not in k}
    for i in range(config["first_k_dense_replace"], config["num_hidden_layers"]):
        stem = f"model.layers.{i}.mlp.experts."
        gu = [torch.cat((w[f"{stem}{e}.gate_proj.weight"], w[f"{stem}{e}.up_proj.weight"])) for e in range(config["n_routed_experts"])]
        state[stem + "gate_up_proj"] = torch.stack(gu)
        state[stem + "down_proj"] = torch.stack([w[f"{stem}{e}.down_proj.weight"] for e in range(config["n_routed_experts"])])
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise SystemExit(f"transformers: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    return model


def ar_pair(config, w):
    """This recipe's llama and transformers' one."""
    from transformers import LlamaConfig, LlamaForCausalLM

    ours = fill_ar(config, w)
    plain = {k: v for k, v in config.items() if k not in ("model_type", "architectures", "dtype", "torch_dtype", "rope_scaling", "rope_theta")}
    theirs = LlamaForCausalLM(LlamaConfig(**plain, rope_parameters={"rope_type": "default", "rope_theta": config["rope_theta"]})).float().eval()
    missing, unexpected = theirs.load_state_dict(w, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise SystemExit(f"transformers: missing {missing}, unexpected {unexpected}")
    theirs.tie_weights()
    return ours, theirs


def compare(name: str, ours, theirs):
    error = ((ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)).max().item()
    print(f"{name}: worst row {error:.2e} over {ours.shape[:-1].numel()} rows")
    if not error < 1e-4:
        raise SystemExit(f"{name}: differs from transformers")


@torch.no_grad()
def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", type=Path, required=True)
    p.add_argument("--prompt", type=Path, help="a token stream (.npy) to compare on; random tokens when absent")
    a = p.parse_args()
    ids = torch.randint(4, 8192, (2, 96), generator=torch.Generator().manual_seed(0))
    if a.prompt:
        import numpy as np

        ids = torch.from_numpy(np.load(a.prompt)[:192].astype(np.int64)).view(2, 96)
    config, tensors = read(a.models / "mini-target")
    w = dense(tensors)
    ours = fill_target(config, w)
    compare("target", ours.logits(ours.hidden(ids)[0]), target_reference(config, w)(ids).logits)
    config, tensors = read(a.models / "mini-ar")
    ours, theirs = ar_pair(config, dense(tensors))
    compare("ar", ours(ids), theirs(ids).logits)
    total = sum(f.stat().st_size for f in a.models.rglob("*") if f.is_file())
    print(f"{total / 1e6:.3f} MB under {a.models}")


if __name__ == "__main__":
    main()
