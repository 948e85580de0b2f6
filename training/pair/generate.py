"""Lock-step batched sampling from the target: every row decodes the same position, prompts are forced token by token."""

import torch
import torch.nn.functional as F

from .shape import PAD
from .target import live_type, rms, rope_table

LOOP_TAIL, LOOP_PERIOD = 64, 32


class Sampler:
    """Buffers and CUDA graphs for `rows` sequences of up to `length` tokens."""

    def __init__(self, model, rows: int, length: int, dev):
        s = model.s
        self.model, self.length, self.dev = model, length, dev
        self.cache = [torch.zeros(rows, length, s.kv_lora + s.rope, dtype=live_type(dev), device=dev) for _ in range(s.layers)]
        self.tokens = torch.full((rows, length + 1), PAD, dtype=torch.int64, device=dev)
        self.prompt = torch.ones(rows, dtype=torch.int64, device=dev)
        self.temperature = torch.ones(rows, 1, device=dev)
        self.position = torch.zeros(1, dtype=torch.int64, device=dev)
        self.cos, self.sin = rope_table(torch.arange(length, device=dev), s.rope, s.theta)
        self.buckets = [b for b in (64, 128, 192, 256, 320, 384, 448, 512, 768, 1024) if b < length] + [length]
        self.graphs = {}

    def _step(self, span: int):
        """One position for every row, attending to the first `span` cache slots."""
        model, s = self.model, self.model.s
        ids = self.tokens.index_select(1, self.position).squeeze(1)
        x = F.embedding(ids, model.embed)
        cos, sin = self.cos.index_select(0, self.position), self.sin.index_select(0, self.position)
        visible = torch.arange(span, device=self.dev) <= self.position
        for block, cache in zip(model.blocks, self.cache, strict=True):
            h = rms(x, block.norm1, s.eps)
            x = x + block.attn.decode(h, cos, sin, cache[:, :span], self.position, visible)
            x, _ = block.feed(x)
        logits = model.logits(x)
        noise = -torch.log(-torch.log(torch.rand_like(logits).clamp_(1e-9, 1 - 1e-7)))
        sample = (logits + self.temperature * noise).argmax(-1)
        forced = self.tokens.index_select(1, self.position + 1).squeeze(1)
        chosen = torch.where(self.position + 1 < self.prompt, forced, sample)
        self.tokens.index_copy_(1, self.position + 1, chosen.unsqueeze(1))
        self.position += 1

    def _graph(self, span: int):
        if span not in self.graphs:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.position.zero_()
                for _ in range(2):
                    self._step(span)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._step(span)
            self.graphs[span] = graph
        return self.graphs[span]

    def prepare(self):
        """Capture every graph (the buffers are overwritten)."""
        if self.dev.type == "cuda":
            for span in self.buckets:
                self._graph(span)

    @torch.no_grad()
    def run(self, prompts, lengths, temperature):
        """prompts [R, P] padded, lengths [R], temperature [R] → tokens [R, length] (what follows `<|eos|>` is noise)."""
        self.prepare()
        self.tokens.fill_(PAD)
        self.tokens[:, : prompts.shape[1]] = prompts
        self.prompt.copy_(lengths)
        self.temperature.copy_(temperature.unsqueeze(1))
        self.position.zero_()
        at = 0
        for span in self.buckets:
            while at < min(span, self.length - 1):
                if self.dev.type == "cuda":
                    self.graphs[span].replay()
                else:
                    self._step(span)
                at += 1
        return self.tokens[:, : self.length].clone()


def loop_start(tokens, ends):
    """First position of the periodic tail of each row, or its end: the last 64 tokens repeat with a period of at most 32."""
    rows, length = tokens.shape
    place = torch.arange(length, device=tokens.device)
    cut = ends.clone()
    inside = place < ends.unsqueeze(1)
    for period in range(1, LOOP_PERIOD + 1):
        same = torch.zeros_like(inside)
        same[:, period:] = tokens[:, period:] == tokens[:, :-period]
        broken = torch.where(inside & ~same, place, -1).amax(1)  # last position that breaks the period
        looped = ends - 1 - broken >= LOOP_TAIL - period
        looped &= ends >= LOOP_TAIL
        cut = torch.where(looped, torch.minimum(cut, broken + 1), cut)
    return cut
