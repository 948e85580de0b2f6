"""Stage 3: byte-level BPE of 8192 and token streams (uint16).

    python3 -m data.tokenise --data DATA --out TOKENS

Writes `tokenizer.json`, `tokenizer_config.json`, and per split and domain a flat uint16 stream in which every document is
`<|bos|> … <|eos|>`, with the offsets of the documents (int64) beside it.
"""

import argparse
import collections
import json
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

SPECIAL = ["<|bos|>", "<|eos|>", "<|pad|>", "<|mask|>"]
VOCAB = 8192
# Words with their leading space, runs of at most three digits one by one, punctuation, line breaks with what precedes them.
PATTERN = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s*\n+|\s+(?!\S)|\s+"
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% if not loop.last %}\n{% endif %}{% endfor %}"
TRAIN_BYTES = {"code": 24_000_000, "docs": 10_000_000, "prose": 14_000_000, "maths": 5_000_000}


def documents(path: Path):
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def sample(path: Path):
    """Training text of the tokenizer: the first bytes of each domain (the documents are already shuffled)."""
    used = collections.Counter()
    for doc in documents(path):
        if used[doc["domain"]] < TRAIN_BYTES[doc["domain"]]:
            used[doc["domain"]] += len(doc["text"].encode())
            yield doc["text"][:60_000]


def train(path: Path) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(sample(path), trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, max_token_length=24,
    ))
    tokenizer.post_processor = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 0)])
    return tokenizer


def config() -> dict:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 1024, "clean_up_tokenization_spaces": False,
        "bos_token": "<|bos|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>", "mask_token": "<|mask|>",
        "add_bos_token": True, "add_eos_token": False, "chat_template": CHAT_TEMPLATE,
        "added_tokens_decoder": {
            str(i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
            for i, t in enumerate(SPECIAL)
        },
    }


def encode(tokenizer: Tokenizer, path: Path, out: Path, split: str):
    texts = collections.defaultdict(list)
    for doc in documents(path):
        texts[doc["domain"]].append(doc["text"])
    for domain, batch in sorted(texts.items()):
        parts, offsets, size = [], [0], 0
        for i in range(0, len(batch), 512):
            for e in tokenizer.encode_batch_fast(batch[i : i + 512], add_special_tokens=False):
                parts.append(np.array([0, *e.ids, 1], dtype=np.uint16))
                offsets.append(offsets[-1] + len(parts[-1]))
        size = sum(len(t.encode()) for t in batch)
        stream = np.concatenate(parts)
        np.save(out / f"{split}.{domain}.npy", stream)
        np.save(out / f"{split}.{domain}.offsets.npy", np.array(offsets, dtype=np.int64))
        print(f"{split:8} {domain:6} {len(batch):6} documents {len(stream) / 1e6:7.2f} M tokens {size / len(stream):5.2f} bytes a token")
        if split == "heldout":
            (out / f"heldout.{domain}.txt").write_text("".join(batch), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.jsonl and heldout.jsonl")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = train(args.data / "train.jsonl")
    tokenizer.save(str(args.out / "tokenizer.json"), pretty=False)
    (args.out / "tokenizer_config.json").write_text(json.dumps(config(), indent=1) + "\n")
    for split in ("train", "heldout"):
        encode(tokenizer, args.data / f"{split}.jsonl", args.out, split)


if __name__ == "__main__":
    main()
