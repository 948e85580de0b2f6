"""Stage 7: the autoregressive drafter on the target's own text.

    python3 train_ar.py --tokens TOKENS --out OUT --seconds 140
"""

import argparse
from pathlib import Path

import torch

from pair import export, stage
from pair.ar import Ar
from pair.ontext import sequences
from pair.optim import Optimiser, decayed, last_two
from pair.shape import TINY_AR, ArShape
from pair.target import to_live


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tokens", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True, help="folder with onpolicy.pt")
    p.add_argument("--seconds", type=float, default=140)
    p.add_argument("--steps", type=int)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--length", type=int, default=448)
    p.add_argument("--lr", type=float, default=6e-3)
    p.add_argument("--adam-lr", type=float, default=5e-3)
    p.add_argument("--seed", type=int, default=4)
    p.add_argument("--tiny", action="store_true")
    a = p.parse_args()
    torch.manual_seed(a.seed)
    dev, log = stage.device(), stage.Log(a.out / "train_ar.jsonl")
    clock, shape = stage.Clock(a.seconds, a.steps), TINY_AR if a.tiny else ArShape()
    rows, first, ends = (t.to(dev) for t in sequences(a.tokens, a.out / "onpolicy.pt", a.length, a.seed))
    model = to_live(Ar(shape).to(dev))
    optimiser = Optimiser(model, last_two, a.lr, a.adam_lr)
    optimiser.publish()
    run, place = stage.compiled(model.loss), torch.arange(1, a.length, device=dev)
    queue, seen, progress = torch.empty(0, dtype=torch.int64, device=dev), 0, 0.0
    while progress < 1.0:
        if len(queue) < a.batch:
            queue = torch.randperm(len(rows), device=dev)
        pick, queue = queue[: a.batch], queue[a.batch :]
        ids = rows[pick]
        weights = ((place < ends[pick].unsqueeze(1)) & (place >= first[pick].unsqueeze(1))).float()
        loss = run(ids[:, :-1], ids[:, 1:], weights)
        loss.backward()
        optimiser.step(decayed(progress))
        seen += ids.numel()
        progress = clock.tick()
        if clock.count % 100 == 1 or progress >= 1.0:
            log(step=clock.count, seconds=clock.elapsed(), progress=progress, loss=loss.item(), lr=decayed(progress), mtokens=seen / 1e6)
    optimiser.publish(True)
    torch.save({"shape": shape, "state": {k: v.cpu() for k, v in model.state_dict().items()}}, a.out / "ar.pt")
    export.write(a.out / "mini-ar", export.ar_config(shape), export.ar_tensors(model))
    log(event="exported", seconds=clock.elapsed())


if __name__ == "__main__":
    main()
