"""Templated documents written for this project (no upstream text): word problems with worked answers,
arithmetic drills, small Python functions with doctests, questions and answers on everyday topics.

Every generator takes a `random.Random` and returns one document.
"""

from random import Random

NAMES = (
    "Ada Ben Cara Dev Elif Finn Gita Hugo Ines Jonas Kira Liam Mona Nils Olga Pia Quinn Rosa Sam Tara Uma Vera Will Xena Yara Zoe "
    "Amir Bea Carl Dana Emil Fay Greg Hana Ivan June Kurt Lena Marc Nora Oskar Paul Rita Sven Tom Ugo Vik Wes Yusuf Zack"
).split()
GOODS = (
    "apples pencils books marbles stickers cookies oranges tickets balloons candles bottles cards eggs flowers muffins shirts "
    "stamps toys cupcakes notebooks lemons shells coins peaches photos bracelets postcards"
).split()
PLACES = "the market|a shop|the school fair|the bakery|a bookstore|the farm|the stadium|the library|a garage sale|the station".split("|")
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()


def _qa(question: str, steps: list[str], answer) -> str:
    return f"Question: {question}\nAnswer: " + "\n".join(steps) + f"\n#### {answer}\n"


def _buy_sell(r: Random) -> str:
    name, good, place = r.choice(NAMES), r.choice(GOODS), r.choice(PLACES)
    a, b, price = r.randint(12, 90), r.randint(2, 11), r.randint(2, 15)
    days = r.choice((1, 5, 7))
    left = a - b
    ask = f"How much money does {name} make?" if days == 1 else f"This happens every day. How much money does {name} make in {days} days?"
    q = f"{name} has {a} {good}. {name} gives {b} of them to friends and sells the rest at {place} for ${price} each. {ask}"
    s = [f"{name} sells {a} - {b} = {left} {good}.", f"{name} makes {left} * {price} = ${left * price}."]
    if days > 1:
        s.append(f"In {days} days this comes to {left * price} * {days} = ${left * price * days}.")
    return _qa(q, s, left * price * days)


def _half_double(r: Random) -> str:
    name, good = r.choice(NAMES), r.choice(GOODS)
    d1, d2 = r.sample(DAYS, 2)
    a, k = 2 * r.randint(6, 80), r.choice((2, 3, 4))
    if r.random() < 0.5:
        q = f"{name} sold {a} {good} on {d1}, and half as many {good} on {d2}. How many {good} did {name} sell altogether on {d1} and {d2}?"
        return _qa(q, [f"{name} sold {a}/2 = {a // 2} {good} on {d2}.", f"{name} sold {a} + {a // 2} = {a + a // 2} {good} altogether."], a + a // 2)
    q = f"{name} collected {a} {good} on {d1}. On {d2}, {name} collected {k} times as many. How many {good} does {name} have in total?"
    return _qa(q, [f"On {d2}, {name} collected {a} * {k} = {a * k} {good}.", f"In total, {name} has {a} + {a * k} = {a + a * k} {good}."], a + a * k)


def _work(r: Random) -> str:
    name = r.choice(NAMES)
    wage, h, d, w = r.randint(8, 30), r.randint(2, 9), r.randint(2, 6), r.randint(2, 8)
    q = f"{name} earns ${wage} an hour and works {h} hours a day, {d} days a week. How much does {name} earn in {w} weeks?"
    s = [
        f"{name} works {h} * {d} = {h * d} hours a week.",
        f"In one week {name} earns {h * d} * {wage} = ${h * d * wage}.",
        f"In {w} weeks {name} earns {h * d * wage} * {w} = ${h * d * wage * w}.",
    ]
    return _qa(q, s, h * d * wage * w)


def _share(r: Random) -> str:
    n1, n2, good = *r.sample(NAMES, 2), r.choice(GOODS)
    n, each, extra = r.randint(2, 9), r.randint(3, 25), r.randint(2, 20)
    total = n * each - extra if n * each > extra + 5 else n * each + extra
    if total == n * each - extra:
        q = f"{n1} has {total} {good} and {n2} gives {n1} {extra} more. {n1} shares all the {good} equally among {n} boxes. How many {good} are in each box?"
        s = [f"{n1} has {total} + {extra} = {total + extra} {good}."]
    else:
        q = f"{n1} has {total} {good} and loses {extra} of them. {n1} shares the remaining {good} equally among {n} boxes. How many {good} are in each box?"
        s = [f"{n1} has {total} - {extra} = {total - extra} {good} left."]
    return _qa(q, [*s, f"Each box holds {n * each} / {n} = {each} {good}."], each)


def _percent(r: Random) -> str:
    name, thing = r.choice(NAMES), r.choice("jacket bicycle lamp phone camera chair table guitar tent watch".split())
    price, off = 20 * r.randint(2, 40), r.choice((5, 10, 15, 20, 25, 30, 40, 50))
    cut = price * off // 100
    if r.random() < 0.5:
        q = f"A {thing} costs ${price}. It is on sale for {off}% off. How much does {name} pay for the {thing}?"
        return _qa(q, [f"The discount is {price} * {off}/100 = ${cut}.", f"{name} pays {price} - {cut} = ${price - cut}."], price - cut)
    q = f"{name} buys a {thing} for ${price} and sells it for {off}% more. What is the selling price of the {thing}?"
    return _qa(q, [f"The profit is {price} * {off}/100 = ${cut}.", f"The selling price is {price} + {cut} = ${price + cut}."], price + cut)


def _age(r: Random) -> str:
    n1, n2 = r.sample(NAMES, 2)
    a, d, y = r.randint(6, 40), r.randint(2, 15), r.randint(2, 12)
    q = f"{n1} is {a} years old. {n2} is {d} years older than {n1}. How old will {n2} be in {y} years?"
    return _qa(q, [f"{n2} is {a} + {d} = {a + d} years old now.", f"In {y} years {n2} will be {a + d} + {y} = {a + d + y} years old."], a + d + y)


def _trip(r: Random) -> str:
    name = r.choice(NAMES)
    v, t, v2, t2 = r.randint(3, 14) * 5, r.randint(2, 6), r.randint(3, 14) * 5, r.randint(1, 6)
    q = f"{name} drives for {t} hours at {v} miles per hour and then for {t2} hours at {v2} miles per hour. How many miles does {name} drive in total?"
    s = [
        f"First {name} drives {t} * {v} = {t * v} miles.", f"Then {name} drives {t2} * {v2} = {t2 * v2} miles.",
        f"In total, {name} drives {t * v} + {t2 * v2} = {t * v + t2 * v2} miles.",
    ]
    return _qa(q, s, t * v + t2 * v2)


def _drill(r: Random) -> str:
    """A dozen sums of one kind, each on its own line."""
    kind, lines = r.randrange(6), []
    for _ in range(r.randint(6, 14)):
        a, b, c = r.randint(2, 99), r.randint(2, 99), r.randint(2, 12)
        lines.append((
            f"{a} + {b} = {a + b}", f"{a + b} - {b} = {a}", f"{a} * {c} = {a * c}", f"{a * c} / {c} = {a}",
            f"{a} + {b} * {c} = {a} + {b * c} = {a + b * c}", f"({a} + {b}) * {c} = {a + b} * {c} = {(a + b) * c}",
        )[kind])
    return "Calculate.\n" + "\n".join(lines) + "\n"


def _equation(r: Random) -> str:
    x, a, b = r.randint(2, 40), r.randint(2, 15), r.randint(1, 60)
    v = r.choice("xyznmt")
    return (
        f"Question: Solve for {v}: {a}{v} + {b} = {a * x + b}.\nAnswer: Subtract {b} from both sides: {a}{v} = {a * x + b} - {b} = {a * x}.\n"
        f"Divide both sides by {a}: {v} = {a * x} / {a} = {x}.\n#### {x}\n"
    )


def _geometry(r: Random) -> str:
    w, h, c = r.randint(3, 60), r.randint(3, 60), r.randint(2, 9)
    thing = r.choice("garden field floor wall poster yard carpet".split())
    if r.random() < 0.5:
        q = f"A rectangular {thing} is {w} feet long and {h} feet wide. What is its area in square feet, and what does it cost to cover it at ${c} per square foot?"
        return _qa(q, [f"The area is {w} * {h} = {w * h} square feet.", f"The cost is {w * h} * {c} = ${w * h * c}."], w * h * c)
    q = f"A rectangular {thing} is {w} feet long and {h} feet wide. A fence costs ${c} per foot. How much does a fence around the {thing} cost?"
    return _qa(q, [f"The perimeter is 2 * ({w} + {h}) = {2 * (w + h)} feet.", f"The fence costs {2 * (w + h)} * {c} = ${2 * (w + h) * c}."], 2 * (w + h) * c)


WORD_PROBLEMS = (_buy_sell, _half_double, _work, _share, _percent, _age, _trip, _equation, _geometry)


def maths_document(r: Random) -> str:
    """One word problem (two in three documents) or a drill."""
    return r.choice(WORD_PROBLEMS)(r) if r.random() < 0.8 else _drill(r)


# ── Python functions ──────────────────────────────────────────────────────────────────────────────────────
_COND = (
    ("even", "{v} % 2 == 0", lambda x: x % 2 == 0), ("odd", "{v} % 2 == 1", lambda x: x % 2 == 1),
    ("positive", "{v} > 0", lambda x: x > 0), ("negative", "{v} < 0", lambda x: x < 0),
    ("divisible by three", "{v} % 3 == 0", lambda x: x % 3 == 0), ("greater than ten", "{v} > 10", lambda x: x > 10),
)
_FOLD = (
    ("sum", "total", "total += {e}", 0, sum), ("product", "result", "result *= {e}", 1, None), ("count", "count", "count += 1", 0, len),
)
_MAP = (("squares", "{v} * {v}", lambda x: x * x), ("doubles", "2 * {v}", lambda x: 2 * x), ("absolute values", "abs({v})", abs), ("values", "{v}", lambda x: x))


def _product(values):
    out = 1
    for value in values:
        out *= value
    return out


def python_document(r: Random) -> str:
    """A small typed function with a docstring, doctests and a plain loop or comprehension as its body."""
    cname, cond, ctest = r.choice(_COND)
    fname, acc, update, start, fold = r.choice(_FOLD)
    mname, expr, mapping = r.choice(_MAP)
    var = r.choice("x n value number item".split())
    arg = r.choice("numbers values items nums lst".split())
    head = "from typing import List\n\n\n"
    examples = [[r.randint(-9, 20) for _ in range(r.randint(2, 6))] for _ in range(2)]
    picked = [[mapping(v) for v in e if ctest(v)] for e in examples]
    if r.random() < 0.45:
        name = f"{'filter' if mname == 'values' else mname.replace(' ', '_') + '_of'}_{cname.replace(' ', '_')}"
        doc = f"Return a list of the {mname} of all {cname} numbers in {arg}." if mname != "values" else f"Return a list of all {cname} numbers in {arg}."
        results, kind = picked, "List[int]"
        if r.random() < 0.5:
            body = f"    return [{expr.format(v=var)} for {var} in {arg} if {cond.format(v=var)}]\n"
        else:
            body = f"    result = []\n    for {var} in {arg}:\n        if {cond.format(v=var)}:\n            result.append({expr.format(v=var)})\n    return result\n"
    else:
        name = f"{fname}_{cname.replace(' ', '_')}"
        doc = f"Return the {fname} of {'the ' + mname + ' of ' if fname != 'count' and mname != 'values' else ''}all {cname} numbers in {arg}."
        if fname == "count":
            results = [len(p) for p in picked]
        else:
            results = [(fold or _product)(p) for p in picked]
        kind = "int"
        body = f"    {acc} = {start}\n    for {var} in {arg}:\n        if {cond.format(v=var)}:\n            {update.format(e=expr.format(v=var))}\n    return {acc}\n"
    tests = "".join(f"    >>> {name}({e})\n    {v}\n" for e, v in zip(examples, results, strict=True))
    return f'{head}def {name}({arg}: List[int]) -> {kind}:\n    """ {doc}\n{tests}    """\n{body}'
