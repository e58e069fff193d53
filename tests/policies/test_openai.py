"""The openai policy: what it sends, what it makes of answers, which fields and models it settles on."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from agentcli.environments.protocol import Picture
from agentcli.errors import MissingError, PolicyError, PromptTooLongError, UsageError
from agentcli.policies.openai import FAILURES_IN_A_ROW, OpenAIPolicy, key_from_environment, plain
from agentcli.policies.protocol import Reply
from agentcli.prompts.protocol import Exchange, Message
from agentcli.records.types import StopReason
from asking import ask, with_policy
from chat_server import Answer, ChatServer, completion
from policy_requests import make_request
from refusal import refused


def test_a_request_says_all_that_decides_the_answer() -> None:
    (reply,), server = ask([completion("open it")], key="k-1")
    assert server.bodies == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": "go"}],
            "temperature": 1.0,
            "max_tokens": 12,
            "seed": 0,
            "logprobs": True,
            "return_token_ids": True,
            "top_k": -1,
            "top_p": 1.0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
        }
    ]
    assert server.headers[0]["Authorization"] == "Bearer k-1"
    assert reply == Reply(
        text="open it",
        token_ids=(5, 6, 7),
        logprobs=(-0.123457, -2.0, 0.0),
        prompt_tokens=11,
        generated_tokens=3,
        stop=StopReason.STOP,
    )


def test_values_for_the_template_are_sent_where_they_are_set_and_never_dropped() -> None:
    off = {"enable_thinking": False}
    _, server = ask([completion()], chat_template_kwargs=off)
    assert server.bodies[0]["chat_template_kwargs"] == off
    _, server = ask([completion()])
    assert "chat_template_kwargs" not in server.bodies[0]
    refusal = Answer({"error": "unknown field chat_template_kwargs"}, status=400)
    (error,), server = ask([refusal], chat_template_kwargs=off)
    assert isinstance(error, MissingError)
    assert "chat_template_kwargs" in str(error)
    assert len(server.bodies) == 1


def test_pictures_are_data_urls_after_the_text() -> None:
    picture = Picture(b"\x89PNG")
    message = Message(("a <|im_end|> b", picture))

    async def work(policy: OpenAIPolicy) -> Reply:
        return await policy.respond(make_request(message=message))

    with ChatServer([completion()]) as server:
        with_policy(server.url, work)
    url = {"url": "data:image/png;base64,iVBORw=="}
    text = {"type": "text", "text": "a < |im_end|> b"}
    assert server.bodies[0]["messages"][0]["content"] == [text, {"type": "image_url", "image_url": url}]


@pytest.mark.parametrize(
    ("logprobs", "asked", "stored"),
    [("raw", 0.4, 1.0), ("processed", 0.4, 0.4), ("processed", 0.0, 1.0), ("raw", 1.0, 1.0)],
)
def test_a_reply_says_of_which_distribution_its_log_probabilities_are(
    logprobs: str, asked: float, stored: float
) -> None:
    """Also without any: then only the temperature of sampling means something."""

    async def work(policy: OpenAIPolicy) -> Reply:
        return await policy.respond(make_request(temperature=asked))

    with ChatServer([completion()]) as server:
        reply = with_policy(server.url, work, logprobs=logprobs)
    assert (reply.temperature, reply.logprob_temperature) == (asked, stored)
    with ChatServer([completion(token_ids=None, logprobs=None)]) as server:
        reply = with_policy(server.url, work, logprobs=logprobs)
    assert (reply.temperature, reply.logprob_temperature) == (asked, 1.0)


def test_without_a_key_nothing_is_sent_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", " ")
    assert key_from_environment("MY_KEY") is None
    monkeypatch.setenv("MY_KEY", "k\n")
    assert key_from_environment("MY_KEY") == "k"
    _, server = ask([completion()])
    assert "Authorization" not in server.headers[0]


def test_one_seed_is_one_seed_in_a_range_that_servers_take() -> None:
    async def work(policy: OpenAIPolicy) -> None:
        for seed in (2**64 - 1, 7, 7, 2**31 + 7):
            await policy.respond(make_request(seed=seed))

    with ChatServer([completion()]) as server:
        with_policy(server.url, work)
    assert [body["seed"] for body in server.bodies] == [2**31 - 1, 7, 7, 7]


def picky(*refused: str) -> Callable[[dict[str, Any], int], Answer]:
    """A server that knows none of these fields, and says so one at a time."""

    def script(body: dict[str, Any], before: int) -> Answer:
        unknown = [name for name in refused if name in body]
        if not unknown:
            return completion(token_ids=None, logprobs=None)
        return Answer({"error": {"message": f"Unrecognized request argument supplied: {unknown[0]}"}}, 400)

    return script


def test_fields_that_a_server_does_not_know_are_settled_once(caplog: pytest.LogCaptureFixture) -> None:
    refused = ("return_token_ids", "top_k", "min_p", "repetition_penalty")
    replies, server = ask(picky(*refused), seeds=5)
    assert [reply.text for reply in replies] == ["hello"] * 5
    assert len(server.bodies) == 4 + 5
    assert not set(refused) & set(server.bodies[-1])
    assert {"seed", "logprobs", "top_p"} < set(server.bodies[-1])
    said = [record.getMessage().removeprefix(f"{server.url} ") for record in caplog.records]
    assert "agentcli train" in said[0]
    assert [text.split(":")[0] for text in said] == [
        *(f"does not take {name}" for name in refused),
        "gives no token ids",
        "gives no log-probabilities",
    ]


@pytest.mark.parametrize("name", ["top_k", "min_p", "top_p", "repetition_penalty"])
def test_processed_log_probabilities_need_a_server_that_samples_from_the_plain_softmax(name: str) -> None:
    """A server's own top_k cuts the distribution that its processed log-probabilities are of."""

    async def work(policy: OpenAIPolicy) -> Reply:
        return await policy.respond(make_request())

    with ChatServer(picky(name)) as server, pytest.raises(UsageError) as caught:
        with_policy(server.url, work, logprobs="processed")
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in (name, "policy.endpoint.logprobs=raw", "--temperature 1"))


def test_requests_that_come_together_settle_the_fields_once() -> None:
    async def work(policy: OpenAIPolicy) -> list[Reply]:
        return await asyncio.gather(*(policy.respond(make_request(seed=seed)) for seed in range(20)))

    with ChatServer(picky("top_k", "seed")) as server:
        assert len(with_policy(server.url, work)) == 20
    assert len(server.bodies) == 22


def test_the_newer_name_of_the_limit_is_used_where_it_is_wanted() -> None:
    def script(body: dict[str, Any], before: int) -> Answer:
        if "max_tokens" in body:
            return Answer({"error": {"message": "Use 'max_completion_tokens' instead of 'max_tokens'."}}, 400)
        return completion()

    (reply,), server = ask(script)
    assert reply.text == "hello"
    assert server.bodies[-1]["max_completion_tokens"] == 12
    assert "max_tokens" not in server.bodies[-1]


def test_what_decides_the_distribution_is_never_dropped() -> None:
    refusal = Answer({"error": {"message": "Unsupported value: 'temperature' does not support 0.4"}}, 400)
    (error,), server = ask([refusal])
    assert isinstance(error, MissingError)
    assert "'temperature' does not support 0.4;" in str(error)
    assert len(server.bodies) == 1


@pytest.mark.parametrize("lacking", [{"token_ids": None}, {"logprobs": None}, {"logprobs": {"content": None}}])
def test_ids_and_logprobs_are_kept_together_or_not_at_all(
    lacking: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    (reply, _), _ = ask([completion(**lacking)], seeds=2)
    assert (reply.token_ids, reply.logprobs) == ((), ())
    assert (reply.text, reply.prompt_tokens, reply.generated_tokens) == ("hello", 11, 3)
    (record,) = caplog.records
    assert "agentcli train" in record.getMessage()


def test_how_a_response_ended() -> None:
    (cut,), _ = ask([completion(finish_reason="length")])
    assert cut.stop is StopReason.LENGTH
    (_, withheld), _ = ask(
        lambda body, before: completion(finish_reason="content_filter" if before else "stop"), seeds=2
    )
    assert isinstance(withheld, PolicyError)
    assert "content filter" in str(withheld)
    (silent,), _ = ask([completion(message={"content": None})])
    assert silent.text == ""


def test_a_prompt_that_is_too_long_is_one_failed_request() -> None:
    (error, _), server = ask([completion()], seeds=2, max_prompt_tokens=10)
    assert isinstance(error, PromptTooLongError)
    assert all(part in str(error) for part in ("11 tokens", "max_prompt_tokens is 10"))
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        "the request exceeds the available context size, try increasing it",
        "context_length_exceeded",
    ],
)
def test_a_prompt_that_the_server_cannot_hold_is_too_long_and_no_failure_of_the_endpoint(text: str) -> None:
    refusal = Answer({"error": {"message": text}}, 400)
    many = 2 * FAILURES_IN_A_ROW
    outcomes, _ = ask([completion(), *[refusal] * many, completion()], seeds=many + 2)
    assert [isinstance(one, Reply) for one in outcomes] == [True, *[False] * many, True]
    assert {type(one) for one in outcomes[1:-1]} == {PromptTooLongError}
    assert str(outcomes[1]).endswith("with --history, or conversations with prompt.restart")


def test_reasoning_that_the_server_takes_out_is_told(caplog: pytest.LogCaptureFixture) -> None:
    ask([completion(message={"content": "<action> look </action>", "reasoning_content": "hm"})], seeds=2)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "reasoning parser" in caplog.text


def test_a_tag_that_the_servers_template_opens_is_put_back(caplog: pytest.LogCaptureFixture) -> None:
    said = "It is near.</think><action> look </action>"
    outcomes, _ = ask([completion(message={"content": text}) for text in (said, f"<think>{said}", said)], seeds=3)
    assert [one.text for one in outcomes] == [f"<think>{said}"] * 3
    assert len(caplog.records) == 1


def test_text_cannot_speak_for_the_model() -> None:
    assert plain("a <|im_end|><|im_start|>system <| |> 1<|2") == "a < |im_end|>< |im_start|>system <| |> 1<|2"
    others = "</s><s>[INST] [/INST]<end_of_turn><start_of_turn>model <｜Assistant｜><eos>"
    assert plain(others) == "< /s>< s>[ INST] [ /INST]< end_of_turn>< start_of_turn>model < ｜Assistant｜>< eos>"
    for token in ("[TOOL_RESULTS]", "[/AVAILABLE_TOOLS]", "[gMASK]", "<sop>", "<pad>", "<|turn>", "<turn|>"):
        assert plain(token) == f"{token[0]} {token[1:]}"
    harmless = "<think> a <b> [1] <span> <answer> x < s > y"
    assert plain(harmless) == harmless

    async def work(policy: OpenAIPolicy) -> None:
        await policy.respond(make_request("see <|im_end|>"))

    with ChatServer([completion()]) as server:
        with_policy(server.url, work)
    assert server.bodies[0]["messages"][0]["content"] == "see < |im_end|>"


def test_the_only_model_is_taken() -> None:
    (reply,), server = ask([completion()], model=None)
    assert reply.text == "hello"
    assert server.bodies[0]["model"] == "served"


@pytest.mark.parametrize(
    ("models", "code", "names"),
    [
        (Answer({"data": [{"id": "a"}, {"id": "b"}]}), 2, ("/v1/models", "a, b", "--model NAME")),
        (Answer({"data": []}), 2, ("/v1/models", "--model")),
        (Answer(status=404), 2, ("policy.model", "/v1/models", "--model")),
        (Answer(status=401), 4, ("401", "OPENAI_API_KEY")),
        (Answer({"data": [{"name": "a"}]}), 4, ("/v1/models", "3 attempts")),
    ],
)
def test_without_a_model_name_there_must_be_one_model(models: Answer, code: int, names: tuple[str, ...]) -> None:
    with ChatServer([completion()], models) as server:
        respond = partial(with_policy, server.url, lambda policy: policy.respond(make_request()), model=None)
        refused(respond, code, names)
    assert server.bodies == []


def test_seconds_are_those_in_which_anyone_waits() -> None:
    async def work(policy: OpenAIPolicy) -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await asyncio.gather(*(policy.respond(make_request(seed=seed)) for seed in range(10)))
        return policy.seconds, loop.time() - begun

    with ChatServer([completion()]) as server:
        seconds, wall = with_policy(server.url, work)
    assert 0 < seconds <= wall + 0.01


def test_a_conversation_is_sent_as_its_messages() -> None:
    """Text of the environment cannot end a turn there either."""
    opening = Message(("one",), system="Be brief.")
    turns = (Exchange(opening, "go on", (5, 6)),)
    request = make_request(message=Message(("two <|im_end|>",), continues="exact"), turns=turns)
    with ChatServer([completion()]) as server:
        with_policy(server.url, lambda policy: policy.respond(request))
    assert server.bodies[0]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "go on"},
        {"role": "user", "content": plain("two <|im_end|>")},
    ]
