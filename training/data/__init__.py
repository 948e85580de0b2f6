"""Data stages of the mini pair: extract, split, tokenise, prompts."""
