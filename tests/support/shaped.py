"""Models of several shapes with random weights, and another model's tokenizer."""

import shutil
from pathlib import Path

SHAPES = {
    "narrow": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
    },
    "deep": {
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "intermediate_size": 512,
    },
    "many words": {
        "hidden_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 6,
        "intermediate_size": 192,
        "vocab_size": 4096,
    },
}


def model_of(shape: dict[str, int], tokenizer: Path, folder: Path) -> None:
    """A model of this shape with random weights."""
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    words = AutoTokenizer.from_pretrained(tokenizer)
    ends = {"eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id, "bos_token_id": None}
    config = Qwen2Config(**{"vocab_size": len(words), **ends, "tie_word_embeddings": True, **shape})
    Qwen2ForCausalLM(config).save_pretrained(folder)
    for file in tokenizer.iterdir():
        if "token" in file.name or file.suffix == ".jinja":
            shutil.copy(file, folder)
