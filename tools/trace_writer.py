"""Writes Treeline rank traces (docs/trace-format.md) from any serving engine; needs pyarrow.

In the engine, per request:   trace = TraceWriter("x.parquet", depth=7, width=32, vocab=163840, context=131072, source="...")
                              r = trace.request(domain="code", prompt_tokens=812, max_new=1024)
at every token after that:    r.step(token, rows)    # rows: [[(token, logp), ...], ...] per depth, drafted behind the token before
at the end of the response:   r.done("eos" | "length")        and once:  trace.close()
The engine must draft at *every* emitted token: decode plainly (no speculation), run the drafter beside it, commit one token
a step. logp are natural logs of the drafter's softmax at temperature 1. No text and no token id is written, only ranks."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

U32, LIST = pa.uint32(), lambda t: pa.list_(pa.field("element", t, nullable=False))
COLUMNS = [("request", pa.uint64()), ("domain", pa.string()), ("prompt_tokens", U32), ("max_new", U32), ("emitted", U32),
           ("end", pa.string()), ("index", U32), ("token", U32), ("truth", LIST(pa.int32())), ("row_end", LIST(U32)),
           ("logp", LIST(pa.float32())), ("id", LIST(U32)), ("parent", LIST(U32)), ("rank", LIST(U32))]
SCHEMA = pa.schema([pa.field(n, t, nullable=n == "token") for n, t in COLUMNS])


class TraceWriter:
    """One file. `depth`: levels that the drafter proposes; `width`: ranks kept per row; `temperature`, `seed`: the target's."""

    def __init__(self, path, depth, width, vocab, context, source, temperature=0.0, seed=0):
        self.depth, self.width, self.requests = depth, width, 0
        meta = dict(depth=depth, width=width, conditional=False, ids=False, vocab=vocab, context=context,
                    temperature=temperature, seed=seed, source=source)
        keys = {"treeline.trace.version": "1", "treeline.trace": json.dumps(meta)}
        self.file = pq.ParquetWriter(path, SCHEMA.with_metadata(keys), compression="snappy")

    def request(self, domain, prompt_tokens, max_new):
        """A response that begins; its first token came from the prefill. Requests are numbered in this order."""
        self.requests += 1
        return Request(self, self.requests - 1, domain, prompt_tokens, max_new)

    def close(self):
        """Ends the file; without it there is none."""
        self.file.close()


class Request:
    """One response. Its rows are kept until it is done: the file holds whole responses."""

    def __init__(self, trace, number, domain, prompt_tokens, max_new):
        self.trace, self.head = trace, (number, domain, prompt_tokens, max_new)
        self.tokens, self.drafts = [], []

    def step(self, token, rows):
        """A token was committed; `rows` is what the drafter had proposed behind the token before it."""
        keep = [sorted(((-l, t) for t, l in row))[:self.trace.width] for row in rows[:self.trace.depth]]
        self.tokens.append(token)
        self.drafts.append([[(t, -l) for l, t in row] for row in keep])

    def done(self, end):
        """Writes the response; `end`: "eos", "length" (max_new tokens) or "context"."""
        number, domain, prompt_tokens, max_new = self.head
        emitted, columns = len(self.tokens) + 1, {n: [] for n, _ in COLUMNS}
        for index in range(emitted):
            rows = self.drafts[index] if index + 1 < emitted else []
            rows = rows[:max(max_new - index - 2, 0)]  # deeper ones no tree could use
            ranks = [[t for t, _ in row] for row in rows]
            came = self.tokens[index:index + len(rows)]
            truth = [r.index(t) if t in r else -1 for r, t in zip(ranks, came)]
            flat = [l for row in rows for _, l in row]
            ends = [sum(map(len, rows[:d + 1])) for d in range(len(rows))]
            values = (number, domain, prompt_tokens, max_new, emitted, end, index, None, truth, ends, flat, [], [], [])
            for (name, _), value in zip(COLUMNS, values):
                columns[name].append(value)
        self.trace.file.write_table(pa.table(columns, schema=self.trace.file.schema))
