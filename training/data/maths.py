"""Maths documents: templates of this project, reasoning-gym data sets, at most 1 % of GSM8K train."""

import json
import re
import sys
from pathlib import Path
from random import Random

from .templates import maths_document, python_document

# Not used: gsm_symbolic (its templates restate GSM8K test questions) and everything that reads data files.
RG = {
    "basic_arithmetic": {}, "chain_sum": {}, "simple_equations": {}, "lcm": {}, "gcd": {}, "prime_factorization": {},
    "fraction_simplification": {}, "polynomial_equations": {}, "simple_integration": {}, "decimal_arithmetic": {},
    "leg_counting": {}, "time_intervals": {}, "calendar_arithmetic": {}, "number_sequence": {}, "products": {}, "power_function": {},
    "simple_geometry": {}, "base_conversion": {}, "number_sorting": {}, "count_primes": {}, "coin_flip": {}, "bitwise_arithmetic": {},
}


def reasoning_gym(folder: Path, per_set: int, seed: int):
    """`per_set` question–answer documents of each listed data set of the package unpacked in `folder`."""
    sys.path.insert(0, str(folder))
    import reasoning_gym as rg

    for name, options in RG.items():
        try:
            data = rg.create_dataset(name, size=per_set, seed=seed, **options)
            items = [data[i] for i in range(per_set)]
        except Exception as error:  # a data set of another version, or one that needs a missing package
            print(f"reasoning-gym: {name} skipped: {error}", file=sys.stderr)
            continue
        for i, item in enumerate(items):
            yield "maths", "reasoning-gym", f"{name}/{i}", f"Question: {item['question'].strip()}\nAnswer: {item['answer']}\n"


def gsm8k_train(path: Path, limit: int):
    """The first `limit` training problems, without the calculator marks."""
    with path.open(encoding="utf-8") as lines:
        for i, line in zip(range(limit), lines):
            row = json.loads(line)
            answer = re.sub(r"<<.*?>>", "", row["answer"])
            yield "maths", "gsm8k-train", str(i), f"Question: {row['question']}\nAnswer: {answer}\n"


def templated(count: int, seed: int):
    """`count` word problems and drills."""
    rng = Random(seed)
    for i in range(count):
        yield "maths", "templates", str(i), maths_document(rng)


def templated_python(count: int, seed: int):
    """`count` small Python functions."""
    rng = Random(seed)
    for i in range(count):
        yield "code", "templates", f"python/{i}", python_document(rng)
