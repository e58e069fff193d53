"""A sentence encoder that is made in no time: a BERT of two layers with random weights, and whole words for tokens."""

from collections.abc import Iterable
from pathlib import Path

LONGEST = 12
"""Tokens of its longest input."""


def write_encoder(folder: Path, words: Iterable[str]) -> Path:
    """Writes the model that knows these words. Returns the folder."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    torch.set_num_threads(1)
    torch.manual_seed(0)
    vocabulary = {word: n for n, word in enumerate(["[PAD]", "[UNK]", *words])}
    whole_words = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    whole_words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=whole_words, pad_token="[PAD]", unk_token="[UNK]")
    tokenizer.save_pretrained(folder)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=LONGEST, **shape))
    model.save_pretrained(folder)
    return folder
