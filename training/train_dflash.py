"""Stage 6: the DFlash drafter on features of the quantised target.

    python3 train_dflash.py --tokens TOKENS --out OUT --seconds 585
"""

import argparse
import math
from pathlib import Path

import torch

from generate import load_target
from pair import export, stage
from pair.dflash import DFlash, draft_loss
from pair.ontext import sequences
from pair.optim import Optimiser, decayed, last_two
from pair.shape import TINY_DFLASH, DFlashShape
from pair.target import live_type, to_live

GAMMA = 4.0


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tokens", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True, help="folder with target.pt and onpolicy.pt")
    p.add_argument("--seconds", type=float, default=585)
    p.add_argument("--steps", type=int)
    p.add_argument("--batch", type=int, default=64, help="sequences a step")
    p.add_argument("--anchors", type=int, default=64, help="anchors a sequence")
    p.add_argument("--length", type=int, default=448)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--adam-lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--tiny", action="store_true")
    return p.parse_args()


@torch.no_grad()
def features_of(target, rows, ends, keep, batch: int = 512):
    """Features of every used token, flat [Σ ends, 3H], and the offset of each sequence."""
    offsets = torch.cat((torch.zeros(1, dtype=torch.int64, device=rows.device), ends.cumsum(0)))
    width = target.s.hidden * len(keep)
    flat = torch.empty(int(offsets[-1]), width, dtype=live_type(rows.device), device=rows.device)
    place = torch.arange(rows.shape[1], device=rows.device)
    for i in range(0, len(rows), batch):
        _, _, kept = target.hidden(rows[i : i + batch], keep)
        used = place < ends[i : i + batch].unsqueeze(1)
        lo = int(offsets[i])
        part = torch.cat(kept, -1)[used]
        flat[lo : lo + len(part)] = part
    return flat, offsets[:-1]


def main():
    a = parse()
    torch.manual_seed(a.seed)
    dev, log = stage.device(), stage.Log(a.out / "train_dflash.jsonl")
    clock = stage.Clock(a.seconds, a.steps)
    shape = TINY_DFLASH if a.tiny else DFlashShape()
    target = load_target(a.out, dev)
    rows, first, ends = (t.to(dev) for t in sequences(a.tokens, a.out / "onpolicy.pt", a.length, a.seed))
    flat, offsets = features_of(target, rows, ends, shape.target_layers)
    log(event="features", seconds=clock.elapsed(), sequences=len(rows), mtokens=len(flat) / 1e6)

    model = to_live(DFlash(shape).to(dev))
    optimiser = Optimiser(model, last_two, a.lr, a.adam_lr)
    optimiser.publish()
    embed = target.embed
    slots = torch.arange(1, shape.block, device=dev)
    slot_weight = torch.exp(-(slots - 1) / GAMMA)
    place = torch.arange(a.length, device=dev)

    def forward(embed, features, anchors, at_anchor, labels, weights):
        return draft_loss(model(embed, features, anchors, at_anchor), embed, labels, weights)

    run = stage.compiled(forward)
    queue, seen, hits, chances, progress = torch.empty(0, dtype=torch.int64, device=dev), 0, 0.0, 0.0, 0.0
    while progress < 1.0:
        if len(queue) < a.batch:
            queue = torch.randperm(len(rows), device=dev)
        pick, queue = queue[: a.batch], queue[a.batch :]
        ids, lo, end = rows[pick], first[pick].unsqueeze(1), ends[pick].unsqueeze(1)
        anchors = lo - 1 + ((end - lo) * torch.rand(a.batch, a.anchors, device=dev)).long()  # lo−1 … end−2
        anchors = anchors.clamp(min=1)
        anchors = torch.minimum(anchors, end - 2)
        where = offsets[pick].unsqueeze(1) + torch.minimum(place, end - 1)
        features = flat[where]
        goal = anchors.unsqueeze(-1) + slots
        weights = slot_weight * (goal < end.unsqueeze(-1))
        labels = ids.gather(1, goal.clamp(max=a.length - 1).flatten(1)).view_as(goal)
        loss, hit = run(embed, features, anchors, ids.gather(1, anchors), labels, weights)
        loss.backward()
        optimiser.step(decayed(progress))
        hits, chances = hits + hit.detach(), chances + (weights > 0).float().sum((0, 1))
        seen += anchors.numel()
        progress = clock.tick()
        if clock.count % 50 == 1 or progress >= 1.0:
            value = loss.item()
            if not math.isfinite(value):
                raise SystemExit("the drafter's loss is not finite")
            log(step=clock.count, seconds=clock.elapsed(), progress=progress, loss=value, lr=decayed(progress), manchors=seen / 1e6,
                hit=[round(h, 4) for h in (hits / chances).tolist()])
            hits, chances = 0.0, 0.0
    optimiser.publish(True)
    torch.save({"shape": shape, "state": {k: v.cpu() for k, v in model.state_dict().items()}}, a.out / "dflash.pt")
    export.write(a.out / "mini-dflash", export.dflash_config(shape, target.s), export.dflash_tensors(model))
    log(event="exported", seconds=clock.elapsed())


if __name__ == "__main__":
    main()
