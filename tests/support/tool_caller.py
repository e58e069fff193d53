"""A tiny model of a chat template with tools, from a config, that makes one of some tool calls, whatever it is asked."""

import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl.chat_template_utils import qwen3_chat_template

MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TURN = "<|im_start|>assistant\n<think>\n\n</think>\n\n"


def write_tool_caller(folder: Path, calls: list[str]) -> None:
    """Writes model and tokenizer. A call is the JSON of its name and its arguments; all are equally likely."""
    sayings = [f"<tool_call>\n{call}\n</tool_call>" for call in calls]
    tokenizer = _tokenizer([TURN, *sayings])
    said = [tokenizer(f"{saying}<|im_end|>", add_special_tokens=False).input_ids for saying in sayings]
    turn = tokenizer(TURN, add_special_tokens=False).input_ids
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=8192,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3ForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    drawn = random.Random(0)
    for update in range(200):
        read = [drawn.randrange(len(tokenizer)) for _ in range(drawn.randrange(5, 60))]
        answer = said[update % len(said)]
        ids = torch.tensor([[*read, *turn, *answer]])
        labels = ids.clone()
        labels[:, : -len(answer)] = -100
        loss = model(ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Bytes, and the pieces of these texts."""
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pieces.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=list(MARKS), initial_alphabet=alphabet, show_progress=False
    )
    pieces.train_from_iterator(texts * 2, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces, pad_token=MARKS[0], eos_token=MARKS[2])
    tokenizer.chat_template = qwen3_chat_template
    return tokenizer
