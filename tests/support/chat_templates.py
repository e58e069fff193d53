"""A tokenizer of bytes with a chat template of TRL's; control tokens and think tags are tokens of their own."""

from pathlib import Path

import trl
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTROL = (
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eot_id|>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<|turn>", "<turn|>", "<|user|>", "<|end|>"),
    *(
        "<|assistant|>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        "[gMASK]",
        "<sop>",
    ),
)
ENDS = {
    "llama3": ("<|eot_id|>",),
    "gemma": ("<eos>", "<end_of_turn>"),
    "gemma3": ("<eos>", "<end_of_turn>"),
    "gemma4": ("<eos>", "<turn|>"),
    "deepseekv3": ("<｜end▁of▁sentence｜>",),
    "deepseek_r1_distill": ("<｜end▁of▁sentence｜>",),
    "glm4moe": ("<|endoftext|>", "<|user|>"),
    "phi3": ("<|endoftext|>", "<|end|>"),
}
"""End-of-turn tokens of generation_config.json, where it is not Qwen's; the first one is the tokenizer's. By the beginning of
a template's name.
"""


def template(name: str) -> str:
    """The source of a template; two are not in TRL's folder."""
    folder = Path(trl.__file__).parent / "chat_templates"
    if name == "smollm2":
        return SMOLLM2
    if name == "qwen3_thinking_2507":
        source = template("qwen3_instruct_2507")
        turn = "'<|im_start|>assistant\\n' }}\n{%- endif %}"
        assert source.endswith(turn)
        return source.removesuffix(turn) + turn.replace("\\n'", "\\n<think>\\n'")
    return (folder / f"{name}.jinja").read_text()


def tokenizer_with(name: str) -> tuple[PreTrainedTokenizerFast, list[int]]:
    """The tokenizer, and the end-of-turn ids of the generation config."""
    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    core = Tokenizer(models.BPE(letters, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(token, special=True) for token in CONTROL])
    core.add_tokens([AddedToken(tag, special=False) for tag in ("<think>", "</think>")])
    families = [family for family in ENDS if name.startswith(family)]
    ends = ENDS[max(families, key=len)] if families else ("<|im_end|>", "<|endoftext|>")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<|begin_of_text|>",
        eos_token=ends[0],
        pad_token="<|endoftext|>",
        additional_special_tokens=list(CONTROL),
        chat_template=template(name),
        name_or_path=name,
    )
    return tokenizer, tokenizer.convert_tokens_to_ids(list(ends))
