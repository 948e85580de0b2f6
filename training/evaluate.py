"""Stage 8: replayed acceptance on the evaluation prompts (a quick check; the model card's table is the product's own).

    python3 evaluate.py --tokens TOKENS --out OUT --prompts experiments/prompts
"""

import argparse
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer

from generate import ends_of
from pair import stage
from pair.generate import Sampler, loop_start
from pair.load import load
from pair.replay import best_first_accepted, chain_accepted, draft_ranks, walk
from pair.shape import PAD
from pair.target import to_live

BUDGETS = (8, 16, 32, 64)


def prompts(folder: Path, tokenizer):
    """(domain, token ids) of every prompt."""
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.open(encoding="utf-8"):
            row = json.loads(line)
            yield row["domain"], tokenizer.encode(row["text"]).ids


@torch.no_grad()
def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tokens", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True, help="folder of the log")
    p.add_argument("--models", type=Path, help="folder with mini-target, mini-dflash and mini-ar; OUT when absent")
    p.add_argument("--prompts", type=Path, required=True)
    p.add_argument("--new", type=int, default=256)
    p.add_argument("--temperatures", type=float, nargs="+", default=[0.7, 0.0, 1.0])
    p.add_argument("--rows", type=int, help="only so many prompts (smoke tests)")
    a = p.parse_args()
    torch.manual_seed(9)
    dev, log = stage.device(), stage.Log(a.out / "evaluate.jsonl")
    target, drafter, ar = (to_live(load((a.models or a.out) / name).to(dev)) for name in ("mini-target", "mini-dflash", "mini-ar"))
    rows = list(prompts(a.prompts, Tokenizer.from_file(str(a.tokens / "tokenizer.json"))))
    rows = rows[:: max(1, len(rows) // a.rows)] if a.rows else rows
    longest = max(len(ids) for _, ids in rows)
    table = torch.full((len(rows), longest), PAD)
    for row, (_, ids) in zip(table, rows, strict=True):
        row[: len(ids)] = torch.tensor(ids)
    lengths = torch.tensor([len(ids) for _, ids in rows], device=dev)
    sampler = Sampler(target, len(rows), longest + a.new, dev)
    for heat in a.temperatures:
        tokens = sampler.run(table.to(dev), lengths, torch.full((len(rows),), heat, device=dev))
        ends = torch.minimum(ends_of(tokens, lengths), lengths + a.new)
        looped = loop_start(tokens, ends) < ends
        _, _, kept = target.hidden(tokens, drafter.s.target_layers)
        features, guess = torch.cat(kept, -1), ar(tokens).argmax(-1)
        out = {}
        for i, (domain, _) in enumerate(rows):
            lo, hi = int(lengths[i]), int(ends[i])
            if hi - lo < 2:
                continue
            seq, anchors = tokens[i, :hi], torch.arange(lo, hi - 1, device=dev)
            values, ranks = draft_ranks(drafter, target.embed, features[i], seq, anchors)
            hit = (guess[i, : hi - 1] == seq[1:]).int()[lo:]
            run = torch.nn.functional.pad(hit, (0, 6)).unfold(0, 7, 1).cumprod(1).sum(1)
            acc = {"chain": chain_accepted(ranks), "ar-chain": run} | {f"best-{b}": best_first_accepted(values, ranks, b) for b in BUDGETS}
            d = out.setdefault(domain, {"responses": 0, "tokens": 0, "loops": 0, "long": 0})
            d["responses"] += 1
            d["tokens"] += len(anchors)
            d["long"] += hi - lo >= 96
            d["loops"] += int(hi - lo >= 96 and looped[i])
            for k, v in acc.items():
                d[k] = d.get(k, 0) + walk(v.tolist(), len(anchors))
        names = ["chain", *(f"best-{b}" for b in BUDGETS), "ar-chain"]
        mean = {}
        for domain, d in sorted(out.items()):
            tau = {k: d["tokens"] / d[k] for k in names}
            log(temperature=heat, domain=domain, responses=d["responses"], tokens=d["tokens"], loop_share=d["loops"] / max(1, d["long"]), **tau)
            for k, v in tau.items():
                mean[k] = mean.get(k, 0.0) + v / len(out)
        log(temperature=heat, domain="mean", ratio_32=mean["best-32"] / mean["chain"], **mean)


if __name__ == "__main__":
    main()
