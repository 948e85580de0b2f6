"""Stage 2: near-duplicate removal, held-out split, and the check against the evaluation texts.

    python3 -m data.split --docs docs.jsonl --wheels WHEELS --out DATA

A document's shingles are its runs of 12 words (lower case, punctuation dropped), hashed.
1. In a seeded random order, a document is dropped when more than half of its shingles were seen before.
2. About 1–2 % of each domain is drawn as held-out; one that shares more than 10 % of its shingles (maths: 50 %) with
   the training documents is dropped altogether.
3. A training document that shares any shingle with HumanEval, GSM8K test or MT-Bench is dropped.
"""

import argparse
import collections
import hashlib
import json
import re
from pathlib import Path
from random import Random

import numpy as np

from .evalsets import evaluation_texts

WORD = re.compile(r"[a-z0-9_]+")
SPAN = 12
TABLE_BITS = 30
HELD_BYTES = {"code": 1_500_000, "docs": 1_100_000, "prose": 900_000, "maths": 600_000}  # before the filter
CLOSE = {"code": 0.10, "docs": 0.10, "prose": 0.10, "maths": 0.50}  # templated questions share their wording by construction
MAX_HELD = 60_000  # longer documents stay in training, so that a domain's held-out text has many documents
NO_HELD = {"gsm8k-train"}


class Shingler:
    """Hashes of 12-word runs; word ids are given in order of appearance."""

    def __init__(self):
        self.ids: dict[str, int] = {}
        rng = np.random.default_rng(5)
        self.mix = rng.integers(1, 2**63, size=SPAN, dtype=np.uint64) | np.uint64(1)

    def __call__(self, text: str) -> np.ndarray:
        ids = self.ids
        words = np.fromiter((ids.setdefault(w, len(ids) + 1) for w in WORD.findall(text.lower())), dtype=np.uint64)
        if len(words) < SPAN:
            return np.empty(0, np.int64)
        words = words * np.uint64(0x9E3779B97F4A7C15)
        words ^= words >> np.uint64(29)
        n = len(words) - SPAN + 1
        total = np.zeros(n, np.uint64)
        for i in range(SPAN):
            total += words[i : i + n] * self.mix[i]
        total ^= total >> np.uint64(31)
        return np.unique((total * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(2)).astype(np.int64)


def slots(hashes: np.ndarray) -> np.ndarray:
    """Table slots (the top bits) of 62-bit hashes; a chance hit of a slot is a few per cent, so only fractions use it."""
    return hashes >> (62 - TABLE_BITS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, required=True)
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    shingle = Shingler()
    banned = np.unique(np.concatenate([shingle(t) for t in evaluation_texts(args.wheels)]))
    docs = [json.loads(line) for line in args.docs.open(encoding="utf-8")]
    Random(3).shuffle(docs)

    seen = np.zeros(1 << TABLE_BITS, np.uint8)
    kept, exact, dropped = [], set(), collections.Counter()
    for doc in docs:
        hashes = shingle(doc["text"])
        key = hashlib.blake2b(doc["text"].encode(), digest_size=12).digest()
        if key in exact:
            dropped["exact", doc["domain"]] += 1
            continue
        exact.add(key)
        if len(hashes) and np.isin(hashes, banned, assume_unique=True).any():
            dropped["evaluation", doc["domain"]] += 1
            continue
        if len(hashes) and doc["domain"] != "maths" and doc["source"] != "templates":
            if seen[slots(hashes)].mean() > 0.5:
                dropped["near-duplicate", doc["domain"]] += 1
                continue
            seen[slots(hashes)] = 1
        kept.append((doc, hashes))

    held_size, candidates, train = collections.Counter(), [], []
    for doc, hashes in kept:
        size, domain = len(doc["text"].encode()), doc["domain"]
        excluded = doc["source"] in NO_HELD or (doc["source"] == "templates" and domain == "code")
        if excluded or size > MAX_HELD or size < 200 or held_size[domain] >= HELD_BYTES[domain]:
            train.append((doc, hashes))
        else:
            held_size[domain] += size
            candidates.append((doc, hashes))

    table = np.zeros(1 << TABLE_BITS, np.uint8)
    for _, hashes in train:
        table[slots(hashes)] = 1
    held = []
    for doc, hashes in candidates:
        if len(hashes) == 0 or table[slots(hashes)].mean() > CLOSE[doc["domain"]]:
            dropped["held-out close to training", doc["domain"]] += 1
        else:
            held.append((doc, hashes))

    for name, part in (("train", train), ("heldout", held)):
        sizes, counts = collections.Counter(), collections.Counter()
        with (args.out / f"{name}.jsonl").open("w", encoding="utf-8") as out:
            for doc, _ in part:
                json.dump(doc, out, ensure_ascii=False)
                out.write("\n")
                sizes[doc["domain"]] += len(doc["text"].encode())
                counts[doc["domain"]] += 1
        for domain in sorted(sizes):
            print(f"{name:8} {domain:6} {counts[domain]:6} documents {sizes[domain] / 1e6:8.2f} MB")
    for (why, domain), count in sorted(dropped.items()):
        print(f"dropped  {why:28} {domain:6} {count:6}")


if __name__ == "__main__":
    main()
