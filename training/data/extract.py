"""Stage 1: unpacked packages → one JSONL of documents.

    python3 -m data.extract --debs DEBS --wheels WHEELS --gsm8k gsm8k_train.jsonl --out docs.jsonl
"""

import argparse
import collections
import itertools
import json
from pathlib import Path

from . import maths, sources


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--debs", type=Path, required=True, help="folder with one unpacked Debian package a sub-folder")
    parser.add_argument("--wheels", type=Path, required=True, help="folder with the unpacked wheels")
    parser.add_argument("--gsm8k", type=Path, help="GSM8K train as JSONL; left out if absent")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    packages = (sources.go, sources.rust, sources.rust_doc, sources.python_doc, sources.sqlite_doc, sources.postgres_doc, sources.wordnet)
    stages = [f(args.debs) for f in packages]
    stages += [
        sources.reasoning_gym_source(args.wheels), maths.reasoning_gym(args.wheels, 1500, 11), maths.templated(45_000, 12),
        maths.templated_python(2_500, 13), sources.wordnet_questions(args.debs, 14),
    ]
    if args.gsm8k:
        stages.append(maths.gsm8k_train(args.gsm8k, 3000))
    sizes, counts = collections.Counter(), collections.Counter()
    with args.out.open("w", encoding="utf-8") as out:
        for domain, source, name, text in itertools.chain(*stages):
            json.dump({"domain": domain, "source": source, "name": name, "text": text}, out, ensure_ascii=False)
            out.write("\n")
            sizes[domain, source] += len(text.encode())
            counts[domain, source] += 1
    for key in sorted(sizes):
        print(f"{key[0]:6} {key[1]:20} {counts[key]:6} documents {sizes[key] / 1e6:8.2f} MB")


if __name__ == "__main__":
    main()
