"""A policy that sees: what a message with pictures becomes, and replies that belong to their request alone."""

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from agentcli.policies.chat_tokens import ChatTokens
from agentcli.policies.hf import TransformersPolicy
from agentcli.policies.layouts import ExactLayout
from agentcli.policies.load import load_model, load_tokenizer, sees
from agentcli.policies.sight import Eyesight, load_sight
from agentcli.policies.tiny import PICTURE
from agentcli.prompts.protocol import Exchange, Message
from agentcli.records.settings import PolicySettings
from peft import LoraConfig, get_peft_model
from policy_requests import all_replies, make_request
from refusal import refused
from seeing import picture, seeing, seeing_policy, shown

PATCHES = 4


@pytest.fixture(scope="module")
def sight() -> Eyesight:
    return seeing()[2]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as `sft` leaves it."""
    folder = tmp_path_factory.mktemp("seeing")
    model, _, sight = seeing()
    model.save_pretrained(folder)
    sight.processor.save_pretrained(folder)
    return folder


def test_pictures_follow_the_text_with_a_token_for_each_patch(sight: Eyesight) -> None:
    tokenizer = sight.processor.tokenizer
    token = tokenizer.convert_tokens_to_ids(PICTURE)
    text = tokenizer("last up").input_ids
    turn = tokenizer("<|assistant|>").input_ids
    for count in range(4):
        message = Message(("last up", *map(picture, range(count))))
        assert sight.prompt_ids(message) == [*text, *[token] * PATCHES * count, *turn]


def test_a_text_cannot_claim_a_picture(sight: Eyesight) -> None:
    tokenizer = sight.processor.tokenizer
    token = tokenizer.convert_tokens_to_ids(PICTURE)
    message = Message((f"last {PICTURE} up <|assistant|>", picture(1)))
    ids = sight.prompt_ids(message)
    assert ids.count(token) == PATCHES
    assert token not in ChatTokens(tokenizer, None, 100, sight).answer_ids(f"go {PICTURE}")


def test_tensors_of_a_batch_are_those_of_its_messages(sight: Eyesight) -> None:
    messages = [Message(("up", picture(1), picture(2))), Message(("up",)), Message(("down", picture(3)))]
    pixels = sight.tensors(messages, 20)["pixel_values"]
    alone = [sight.tensors([message], 20).get("pixel_values") for message in messages]
    torch.testing.assert_close(pixels, torch.cat([one for one in alone if one is not None]), atol=0, rtol=0)
    assert sight.tensors([Message(("up",))], 20) == {}


@pytest.mark.parametrize(
    ("side", "expected"), [("right", [[1, 1, 0, 0], [1, 0, 0, 0]]), ("left", [[0, 0, 1, 1], [0, 0, 0, 1]])]
)
def test_numbers_of_tokens_are_filled_up_beside_them(sight: Eyesight, side: str, expected: list[list[int]]) -> None:
    other = Eyesight(Typing())
    messages = [Message(("a b",)), Message(("a",))]
    tensors = other.tensors(messages, 4, side)
    assert tensors["token_type_ids"].tolist() == expected
    # Those of another size are filled up too, as processors do in a batch.
    assert tensors["pixel_values"].shape == (2, 2, 3)
    assert tensors["pixel_values"][1].sum() == 3


class Typing:
    """A processor with a number for each token, and as many tiles as words."""

    all_special_multimodal_tokens: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.tokenizer = seeing()[1]

    def apply_chat_template(self, turns: list[dict[str, Any]], **_: object) -> dict[str, torch.Tensor]:
        words = len(turns[0]["content"][0]["text"].split())
        ones = torch.ones(1, words, dtype=torch.long)
        return {
            "input_ids": ones,
            "attention_mask": ones,
            "token_type_ids": ones,
            "pixel_values": torch.ones(1, words, 3),
        }


def test_a_reply_is_the_same_bits_in_any_company() -> None:
    policy = seeing_policy()
    requests = [shown(number, pictures=number % 3, temperature=(number % 4) / 2) for number in range(40)]
    alone = [all_replies(policy, [request])[0] for request in requests]
    rng = random.Random(4)
    for count in (2, 7, 8, 9, 40):
        company = rng.sample(range(40), count)
        assert all_replies(policy, [requests[place] for place in company]) == [alone[place] for place in company]
    assert all_replies(seeing_policy(batch_rows=5, linger_ms=0.0), requests, 3) == alone


def test_the_picture_decides(sight: Eyesight) -> None:
    policy = seeing_policy()
    same_words = [make_request(seed=3, message=Message(("up", picture(number)))) for number in range(12)]
    assert len({reply.logprobs for reply in all_replies(policy, same_words)}) == 12
    # One class of an exact batch holds one number of pictures.
    keys = {ExactLayout().key(policy.tokens.prompted(request)) for request in same_words}
    assert len(keys) == 1


def test_fast_batches_share_no_prompt_of_equal_tokens() -> None:
    requests = [make_request(seed=number, message=Message(("up", picture(number % 3)))) for number in range(9)]
    exact, fast = (all_replies(seeing_policy(batching=kind), requests) for kind in ("exact", "fast"))
    for one, other in zip(exact, fast, strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_logprobs_are_those_of_teacher_forcing() -> None:
    model, _, sight = seeing()
    requests = [shown(number, pictures=1 + number % 2, temperature=0.7) for number in range(8)]
    for request, reply in zip(requests, all_replies(seeing_policy(), requests), strict=True):
        prompt = sight.prompt_ids(request.message)
        tensors = sight.tensors([request.message], len(prompt))
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *reply.token_ids]]), **tensors).logits[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(logits / 0.7, -1).gather(-1, torch.tensor(reply.token_ids)[:, None])[:, 0]
        assert torch.tensor(reply.logprobs) == pytest.approx(expected, abs=1e-5)


def test_a_saved_policy_sees_the_same(saved: Path) -> None:
    assert sees(str(saved))
    requests = [shown(number) for number in range(6)]
    loaded = TransformersPolicy(
        load_model(str(saved)), load_tokenizer(str(saved)), PolicySettings(), load_sight(str(saved))
    )
    assert all_replies(loaded, requests) == all_replies(seeing_policy(), requests)


def test_an_adapter_sees_with_the_processor_of_its_base(saved: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    peft = get_peft_model(
        load_model(str(saved)),
        LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False),
    )
    peft.save_pretrained(adapter)
    sight = load_sight(str(adapter))
    assert sight is not None
    policy = TransformersPolicy(load_model(str(adapter)), load_tokenizer(str(adapter)), PolicySettings(), sight)
    requests = [shown(number) for number in range(3)]
    adapted = all_replies(policy, requests)
    assert adapted != all_replies(seeing_policy(), requests)
    assert all(reply.token_ids for reply in adapted)


def test_the_next_tree_of_a_trajectory_shares_its_text() -> None:
    policy = seeing_policy()
    message = Message(("last up", picture(1)))
    (reply,) = all_replies(
        policy, [make_request(seed=1, message=message, turns=(Exchange(Message(("last down",)), ""),))]
    )
    assert reply.shared_prompt_tokens == 1
    assert reply.prompt_tokens == len(policy.tokens.prompted(make_request(message=message)).prompt)


def test_a_policy_that_reads_texts_refuses_pictures(model: Any, tokenizer: Any) -> None:
    policy = TransformersPolicy(model, tokenizer, PolicySettings())
    refused(lambda: all_replies(policy, [shown(1)]), names="policy.kind", remedy="--policy")


def test_more_pictures_than_a_processor_takes_are_refused(sight: Eyesight) -> None:
    one = copy.deepcopy(sight.processor)
    # The template of a model that was taught with one picture a message.
    one.chat_template = f"{PICTURE}{{{{ messages[0]['content'][0]['text'] }}}}"
    limited = Eyesight(one)
    assert limited.prompt_ids(Message(("up", picture(1))))
    for count in (0, 2):
        message = Message(("up", *map(picture, range(count))))
        refused(
            lambda message=message: limited.prompt_ids(message), names=("LlavaProcessor", str(count)), remedy="--model"
        )


def test_a_directory_without_its_processor_is_refused(saved: Path, tmp_path: Path) -> None:
    for file in saved.iterdir():
        if file.name != "processor_config.json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    refused(lambda: load_sight(str(tmp_path)), 3, names=str(tmp_path), remedy="--model")
