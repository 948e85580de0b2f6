"""Stage 5: text written by the quantised target itself, for the drafters to learn from.

    python3 generate.py --tokens TOKENS --out OUT --seconds 100
"""

import argparse
from pathlib import Path

import torch

from pair import stage
from pair.generate import Sampler, loop_start
from pair.prompts import Prompts
from pair.shape import EOS
from pair.target import Target, to_live


def load_target(folder: Path, dev):
    """The trained target with its live (quantised) weights, frozen."""
    saved = torch.load(folder / "target.pt", weights_only=False)
    model = to_live(Target(saved["shape"]).to(dev))
    model.load_state_dict(saved["state"])
    return model.requires_grad_(False)


def ends_of(tokens, lengths):
    """Number of tokens of each row up to and with the first `<|eos|>` after the prompt."""
    place = torch.arange(tokens.shape[1], device=tokens.device)
    stop = (tokens == EOS) & (place >= lengths.unsqueeze(1))
    return torch.where(stop.any(1), stop.int().argmax(1) + 1, tokens.shape[1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tokens", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True, help="folder with target.pt; onpolicy.pt is written there")
    p.add_argument("--seconds", type=float, default=100)
    p.add_argument("--rows", type=int, default=4096)
    p.add_argument("--length", type=int, default=448)
    p.add_argument("--passes", type=int, default=60, help="at most so many batches")
    p.add_argument("--seed", type=int, default=2)
    a = p.parse_args()
    torch.manual_seed(a.seed)
    dev, log = stage.device(), stage.Log(a.out / "generate.jsonl")
    model = load_target(a.out, dev)
    sampler, prompts, clock = Sampler(model, a.rows, a.length, dev), Prompts(a.tokens, a.seed), stage.Clock(a.seconds)
    kept, looped, rows, total = [], 0, 0, 0
    for n in range(a.passes):
        ids, lengths, heat = prompts.batch(a.rows)
        lengths, heat = lengths.to(dev), heat.to(dev)
        tokens = sampler.run(ids.to(dev), lengths, heat)
        ends = ends_of(tokens, lengths)
        cut = torch.maximum(loop_start(tokens, ends), lengths)
        looped += (cut < ends).sum().item()
        rows += a.rows
        use = cut - lengths >= 16
        kept.append((tokens[use].to(torch.int16), lengths[use].to(torch.int16), cut[use].to(torch.int16)))
        total += (cut - lengths)[use].sum().item()
        log(batch=n, seconds=clock.elapsed(), mtokens=total / 1e6, looped=looped / rows)
        if clock.progress() * (n + 2) / (n + 1) > 1.0:
            break
    tokens, lengths, ends = (torch.cat(parts).cpu() for parts in zip(*kept, strict=True))
    torch.save({"tokens": tokens, "lengths": lengths, "ends": ends}, a.out / "onpolicy.pt")
    log(event="done", seconds=clock.elapsed(), sequences=len(tokens), response_mtokens=total / 1e6)


if __name__ == "__main__":
    main()
