"""A tiny Llama for real engines: its configuration and a tokenizer of bytes. The weights are made at load.

Its shape is that of the captured `tiny-llama`: 2,048 bytes of KV for a token, so the same flags give the same pool.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAME = "tiny-llama"
MAX_LEN = 2048
SPECIALS = ("<s>", "</s>")
FIRST_LETTER, LETTERS = len(SPECIALS), 256
"""Token ids of bytes are `FIRST_LETTER` up to `FIRST_LETTER + LETTERS - 1`."""


def write_tiny_model(folder: Path) -> Path:
    """Write the model below `folder`, and return where it is."""
    model = folder / NAME
    model.mkdir(parents=True)
    for name, content in {
        "config.json": CONFIG,
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 1},
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIALS[0],
            "eos_token": SPECIALS[1],
            "model_max_length": MAX_LEN,
        },
    }.items():
        (model / name).write_text(json.dumps(content))
    return model


CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": FIRST_LETTER + LETTERS,
    "max_position_embeddings": MAX_LEN,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
}


def _tokenizer() -> dict[str, Any]:
    """A byte-level BPE without merges, in the format of the `tokenizers` library: a token is a byte."""
    by_byte = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    vocabulary = [*SPECIALS, *_letters()]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": text, **plain} for number, text in enumerate(SPECIALS)],
        "normalizer": None,
        "pre_tokenizer": by_byte,
        "post_processor": None,
        "decoder": by_byte,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: number for number, text in enumerate(vocabulary)},
            "merges": [],
        },
    }


def _letters() -> list[str]:
    """GPT-2's letters for the 256 bytes: printable ones are themselves, the others begin at code point 256."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(LETTERS) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + hidden.index(byte)) for byte in range(LETTERS)]
