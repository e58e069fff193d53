"""A policy trained from scratch: a word-level tokenizer and a small Qwen2.

The tokenizer is built from demonstrations, the model from settings. Whole entities
("fridge 1") are single tokens, because a model of 0.4 M parameters learns to name them
much faster that way. Both are saved with `save_pretrained` as a plain Hugging Face
directory. Nothing is trained here.

A vision policy has a small encoder besides (LLaVA). Pictures are cut into patches, and
every patch becomes a token of the prompt. If a world draws its cells as wide as a patch,
the policy reads cell by cell, which it learns in minutes.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agentcli.environments.protocol import Picture
from agentcli.errors import UsageError
from agentcli.policies.load import withhold_placeholders
from agentcli.policies.sight import opened
from agentcli.records.training_settings import TinySettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

PAD, UNKNOWN, ASSISTANT, END = "<|pad|>", "<|unknown|>", "<|assistant|>", "<|end|>"
PICTURE = "<|picture|>"
"""A patch of a picture, in the tokenizer of a vision policy."""
TAGS = tuple(
    f"<{slash}{name}>"
    for name in ("think", "explore", "planning", "reflection", "action")
    for slash in ("", "/")
)
PUNCTUATION = tuple(".,:;!?()[]{}<>|/\\'\"`-=+*#&%$@^~_")
CLOSING, OPENING = ".,:;!?)]}", "([{"

TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}"
    "<|assistant|>{% generation %}{{ message['content'] | trim "
    "}}<|end|>{% endgeneration %}{% else %}{{ message['content'] }}\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""Adds one token to the text. The end-of-turn token is inside the generation block, so
that it is learned.
"""

SEEING_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}"
    "<|assistant|>{% generation %}{{ (message['content'] if message['content'] is "
    "string else message['content'][0]['text']) | trim }}<|end|>{% endgeneration %}"
    "{% elif message['content'] is string %}"
    "{{ message['content'] }}\n{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|picture|>{% else %}{{ part['text'] }}{% endif %}"
    "\n{% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""The same for messages whose texts and pictures are separate parts, as in processors.
"""

NO_REMOTE_CLASS = {"AutoTokenizer": [None, None]}
"""For a qwen2 model AutoTokenizer loads any tokenizer as Qwen's own BPE, whatever class
its files name, unless they have an auto_map; it then skips the map and uses the named
class (transformers 5.17-5.23).
"""

MAX_POSITIONS = 32768
LEAST_SPREAD = 1 / 255
"""Lower bound of a colour's standard deviation, which may be 0 in the pictures."""


def make_tokenizer(
    texts: Iterable[str], entities: list[str], sees: bool = False
) -> "PreTrainedTokenizerFast":
    """A word-level tokenizer of words and `word number` pairs in texts and entities.

    Unknown words become one unknown token each; nothing is ever truncated. Decoding
    puts one space between words and none before closing or after opening punctuation,
    nor before a bracket: tool calls are written NAME[argument]. The vocabulary is
    sorted, so it does not depend on the order of the texts. A policy that `sees` has
    one more token, for pictures.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    splitter = pre_tokenizers.Split(
        Regex(_pattern(entities)), behavior="removed", invert=True
    )
    words = {*TAGS, *PUNCTUATION, *entities}
    for entity in entities:
        words.update(entity.split())
    for text in texts:
        words.update(word for word, _ in splitter.pre_tokenize_str(text))
    pictures = [PICTURE] if sees else []
    tokens = (PAD, UNKNOWN, ASSISTANT, END, *pictures, *sorted(words))
    vocabulary = {word: index for index, word in enumerate(tokens)}

    core = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    core.pre_tokenizer = splitter
    core.decoder = decoders.Sequence(
        [
            # No word begins with this prefix, so WordPiece joins none to the
            # word before it: it only puts the spaces.
            decoders.WordPiece(prefix="\x00", cleanup=False),
            decoders.Fuse(),
            *(decoders.Replace(f" {mark}", mark) for mark in CLOSING),
            *(decoders.Replace(f"{mark} ", mark) for mark in OPENING),
            decoders.Replace(" [", "["),
            decoders.Replace("> <", "><"),
        ]
    )
    make: Callable[..., PreTrainedTokenizerFast] = PreTrainedTokenizerFast
    tokenizer = make(
        tokenizer_object=core,
        unk_token=UNKNOWN,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[ASSISTANT, *pictures],
        chat_template=SEEING_TEMPLATE if sees else TEMPLATE,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_POSITIONS,
    )
    # Saved by save_pretrained, and read by AutoTokenizer (NO_REMOTE_CLASS).
    tokenizer.init_kwargs["auto_map"] = NO_REMOTE_CLASS
    return tokenizer


def _pattern(entities: list[str]) -> str:
    """The regular expression that matches one token."""
    numbered = re.compile(r"[^\W\d_]\w* \d+")
    several_words = []
    opened = []
    for entity in entities:
        if entity.endswith(tuple(OPENING)):
            opened.append(re.escape(entity))
        elif " " in entity and not numbered.fullmatch(entity):
            several_words.append(entity)
    patterns = [
        r"[^\W\d_]\w* \d+(?!\w|[^\s<>]\w)",  # a word with its number
        r"\w(?:[^\s<>\[\]]*\w)?",  # a word; the name of a call ends at its bracket
        r"</?[a-z]+(?:_\d+)?>",  # a tag
        r"\S",  # a mark
    ]
    if several_words:
        # The first alternative that fits is taken, not the longest one.
        longest_first = sorted(several_words, key=lambda entity: (-len(entity), entity))
        alternatives = "|".join(map(re.escape, longest_first))
        patterns.insert(0, rf"(?:{alternatives})(?!\w)")
    # The beginning of a call, such as click[, else one word with what follows.
    return "|".join([*opened, *patterns])


def make_model(
    settings: TinySettings,
    tokenizer: "PreTrainedTokenizerFast",
    seed: int,
) -> "Qwen2ForCausalLM":
    """A float32 Qwen2 with tied embeddings, initialised from `seed`."""
    from transformers import Qwen2ForCausalLM

    config = text_config(settings, tokenizer)
    model: Qwen2ForCausalLM = drawn(Qwen2ForCausalLM, config, tokenizer, seed)
    return model


def text_config(settings: TinySettings, tokenizer: "PreTrainedTokenizerFast") -> Any:
    """The configuration of a small Qwen2.

    Raises UsageError if the sizes do not divide.
    """
    from transformers import Qwen2Config

    _check_shape(settings)
    return Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden,
        intermediate_size=settings.intermediate,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.kv_heads,
        max_position_embeddings=MAX_POSITIONS,
        initializer_range=settings.initializer_range,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def drawn(
    kind: Any, config: Any, tokenizer: "PreTrainedTokenizerFast", seed: int
) -> Any:
    """A float32 model of the given class, with weights initialised from `seed`.

    The global random state does not change.
    """
    import torch
    from transformers import GenerationConfig

    # The model is made on the CPU; by default the state of every GPU is saved as well.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        model = kind(config).float()
    defaults: Callable[..., GenerationConfig] = GenerationConfig
    model.generation_config = defaults(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model


def _check_shape(settings: TinySettings) -> None:
    """Raises UsageError if the sizes do not divide."""
    # Rotary embeddings turn pairs of numbers, so the width of a head is even.
    if settings.hidden % (2 * settings.heads):
        raise UsageError(
            f"sft.tiny.hidden: {settings.hidden} is not a multiple of 2 x "
            f"sft.tiny.heads ({2 * settings.heads})"
        )
    if settings.heads % settings.kv_heads:
        raise UsageError(
            f"sft.tiny.heads: {settings.heads} is not a multiple of sft.tiny.kv_heads "
            f"({settings.kv_heads})"
        )


class Look(NamedTuple):
    """What the pictures of a world have in common."""

    side: int
    """Length of the longest side, in pixels."""
    mean: list[float]
    """Mean of red, green and blue, each from 0 to 1."""
    spread: list[float]
    """Standard deviation of each colour."""


def look_of(pictures: Sequence[Picture]) -> Look:
    """Computes the look of some pictures."""
    images = [opened(picture) for picture in pictures]
    # The longest side of any picture, so none loses a row of pixels.
    side = max(max(image.size) for image in images)
    pixels = np.concatenate([np.asarray(image).reshape(-1, 3) for image in images])
    colours = pixels / 255
    spread = np.maximum(colours.std(axis=0), LEAST_SPREAD)
    return Look(int(side), colours.mean(axis=0).tolist(), spread.tolist())


def make_processor(
    tokenizer: "PreTrainedTokenizerFast", settings: TinySettings, look: Look
) -> Any:
    """The processor of a tiny policy for pictures with this look.

    Pictures of other sizes are scaled to the same square. Colours are normalised by the
    world's mean: what all patches share would hide how they differ.
    """
    from transformers import LlavaProcessor
    from transformers.models.siglip.image_processing_pil_siglip import (
        SiglipImageProcessorPil,
    )

    square = _square(settings, look)
    make_images: Any = SiglipImageProcessorPil
    image_processor = make_images(
        size={"height": square, "width": square},
        image_mean=look.mean,
        image_std=look.spread,
    )
    make: Any = LlavaProcessor
    return make(
        image_processor=image_processor,
        tokenizer=tokenizer,
        patch_size=settings.patch,
        vision_feature_select_strategy="full",
        chat_template=tokenizer.chat_template,
        image_token=PICTURE,
    )


def make_seeing_model(
    settings: TinySettings,
    tokenizer: "PreTrainedTokenizerFast",
    look: Look,
    seed: int,
) -> Any:
    """A float32 LLaVA with the text model of a tiny policy, initialised from `seed`."""
    from transformers import (
        LlavaConfig,
        LlavaForConditionalGeneration,
        SiglipVisionConfig,
    )

    eye = SiglipVisionConfig(
        hidden_size=settings.hidden,
        intermediate_size=settings.intermediate,
        num_hidden_layers=settings.eye_layers,
        num_attention_heads=settings.heads,
        image_size=_square(settings, look),
        patch_size=settings.patch,
        # The head pools all patches into one vector; here each is a token.
        vision_use_head=False,
    )
    config = LlavaConfig(
        vision_config=eye,
        text_config=text_config(settings, tokenizer),
        image_token_index=tokenizer.vocab[PICTURE],
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
    )
    model = drawn(LlavaForConditionalGeneration, config, tokenizer, seed)
    withhold_placeholders(model)
    return model


def _square(settings: TinySettings, look: Look) -> int:
    """The side of the square in pixels, a whole number of patches."""
    return -(-look.side // settings.patch) * settings.patch
