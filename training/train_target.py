"""Stage 4: train the target, quantisation-aware at the end, and export it.

    python3 train_target.py --tokens TOKENS --out OUT --seconds 480
"""

import argparse
import json
from pathlib import Path

import torch

from pair import export, stage
from pair.optim import Optimiser, decayed, target_matrix
from pair.quant import fake_quantise
from pair.score import bits_per_byte
from pair.shape import TINY_TARGET, TargetShape
from pair.target import Target, to_live

REPEAT = {"code": 1.0, "docs": 1.2, "prose": 1.3, "maths": 0.6}
QUANTISED_FROM = 0.80
BIAS_STEP = 2e-3


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tokens", type=Path, required=True, help="folder written by data.tokenise")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--seconds", type=float, default=480, help="wall time of the training loop; the schedule follows the clock")
    p.add_argument("--steps", type=int, help="end after so many steps instead (smoke tests)")
    p.add_argument("--batch", type=int, default=64, help="sequences a step")
    p.add_argument("--lr", type=float, default=5e-3, help="Muon's rate")
    p.add_argument("--adam-lr", type=float, default=3e-3, help="AdamW's rate: embedding, router, norms")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--tiny", action="store_true", help="tiny shapes for a smoke test on a CPU")
    p.add_argument("--eval-every", type=float, default=60, help="seconds between looks at a slice of the held-out text")
    p.add_argument("--no-eval", action="store_true")
    return p.parse_args()


@torch.no_grad()
def balance(blocks, counts, factor: float):
    """Move each selection bias towards equal load, by the sign of the error."""
    for block, c in zip(blocks, counts, strict=True):
        c = c.float()
        block.mlp.bias += BIAS_STEP * factor * torch.sign(c.mean() - c)


def use(model, forwards):
    """Set each block's forward: compiled for training, eager for scoring (no second compilation)."""
    for block, forward in zip(model.blocks, forwards, strict=True):
        block.forward = forward


def final_masters(model, optimiser) -> dict:
    """fp32 masters of the routed experts by checkpoint name, so that export quantises exactly what training did."""
    s, by_id = model.s, {}
    for g in optimiser.groups:
        start = 0
        for p in g.live:
            n = p.numel() // (g.shape[0] * g.shape[1])
            by_id[id(p)] = g.master[start : start + n].reshape(p.shape)
            start += n
    out = {}
    for i, block in enumerate(model.blocks):
        if block.dense:
            continue
        w13, w2 = by_id[id(block.mlp.w13)].cpu(), by_id[id(block.mlp.w2)].cpu()
        for e in range(s.experts):
            stem = f"model.layers.{i}.mlp.experts.{e}."
            out[stem + "gate_proj.weight"], out[stem + "up_proj.weight"] = w13[e, : s.moe_inter], w13[e, s.moe_inter :]
            out[stem + "down_proj.weight"] = w2[e]
    return out


def main():
    a = parse()
    torch.manual_seed(a.seed)
    dev, shape = stage.device(), TINY_TARGET if a.tiny else TargetShape()
    log = stage.Log(a.out / "train_target.jsonl")
    model = to_live(Target(shape).to(dev))
    optimiser = Optimiser(model, target_matrix, a.lr, a.adam_lr, quantise=lambda n: n.endswith(("w13", "w2")))
    optimiser.publish()
    data = stage.Windows(a.tokens, shape.context, REPEAT, dev, a.seed)
    log(event="start", parameters=sum(p.numel() for p in model.parameters()), tokens=len(data.tokens), device=str(dev), torch=torch.__version__)
    model.loss = stage.compiled(model.loss)
    eager = [b.forward for b in model.blocks]
    fast = [stage.compiled(f) for f in eager]
    use(model, fast)

    clock, quantised, trained = stage.Clock(a.seconds, a.steps), False, 0
    progress, looked = 0.0, 0.0
    while progress < 1.0:
        factor = decayed(progress)
        if not quantised and progress >= QUANTISED_FROM:
            quantised = True
            optimiser.publish(True)
        ids, labels = data.batch(a.batch)
        x, counts, _ = model.hidden(ids)
        loss = model.loss(x, labels)
        loss.backward()
        optimiser.step(factor, quantised)
        balance([b for b in model.blocks if not b.dense], counts, factor)
        trained += ids.numel()
        progress = clock.tick()
        if clock.count % 25 == 1 or progress >= 1.0:
            value, load = loss.item(), torch.stack(counts).float()
            log(step=clock.count, seconds=clock.elapsed(), progress=progress, loss=value, lr=factor, mtokens=trained / 1e6, epoch=data.epochs,
                quantised=quantised, load_max=(load.amax(1) / load.mean(1)).mean().item(), idle=(load == 0).sum().item())
        if not a.no_eval and clock.elapsed() - looked > a.eval_every:
            looked = clock.elapsed()
            use(model, eager)
            log(event="look", seconds=looked, mtokens=trained / 1e6, **bits_per_byte(model, a.tokens, dev, limit=65_536))
            use(model, fast)
    use(model, eager)
    if not quantised:
        optimiser.publish(True)
    masters = final_masters(model, optimiser)
    tensors = export.packed(export.target_tensors(model), masters)
    export.write(a.out / "mini-target", export.target_config(shape), tensors, 13_000_000)
    state = {k: v.cpu() for k, v in model.state_dict().items()}
    torch.save({"shape": shape, "state": state}, a.out / "target.pt")
    some = next(iter(masters))
    assert torch.equal(fake_quantise(masters[some]).to(torch.bfloat16), export.target_tensors(model)[some]), "export differs from training"
    log(event="exported", seconds=clock.elapsed())
    if not a.no_eval:
        bpb = bits_per_byte(model, a.tokens, dev, limit=4096 if a.tiny else None)
        log(event="heldout", seconds=clock.elapsed(), **bpb)
        (a.out / "bpb.json").write_text(json.dumps(bpb) + "\n")


if __name__ == "__main__":
    main()
