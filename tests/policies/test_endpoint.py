"""An endpoint that misbehaves: what is asked again and when, what is not, and what ends the command."""

import asyncio
from functools import partial
from typing import Any

import pytest
from agentcli.errors import MissingError, PolicyError
from agentcli.policies import endpoint
from agentcli.policies.openai import FAILURES_IN_A_ROW, OpenAIPolicy
from agentcli.policies.protocol import Reply
from agentcli.records.settings import EndpointSettings, PolicySettings
from asking import Clock, ask, with_policy
from chat_server import Answer, ChatServer, completion
from policy_requests import make_request
from refusal import refusal, refused

BROKEN = Answer(status=500)

TROUBLE = {
    "too many": Answer(status=429),
    "timeout of a proxy": Answer(status=408),
    "conflict": Answer(status=409),
    "broken": BROKEN,
    "starting": Answer(b"<html>loading</html>", 503),
    "cut in the body": Answer(completion().data, cut=25),
    "cut before the body": Answer(completion().data, cut=0),
    "no JSON": Answer(b'{"choices": [{'),
    "not UTF-8": Answer(b'{"choices": [{"message": {"content": "\xff"}, "finish_reason": "stop"}]}'),
    "deep": Answer(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "error with status 200": Answer({"error": {"message": "overloaded"}}),
    "no choices": Answer({"choices": []}),
    "text of another type": completion(message={"content": ["a"]}),
    "no such end": completion(finish_reason="abort"),
    "unequal lists": completion(token_ids=[1, 2]),
    "negative id": completion(token_ids=[1, -2, 3]),
    "huge id": completion(token_ids=[1, 2**40, 3]),
    "positive logprob": completion(logprobs={"content": [{"logprob": value} for value in (-1.0, 0.5, 0.0)]}),
    "NaN": Answer(completion().data.replace(b"-2.0", b"NaN")),
    "infinite": Answer(completion().data.replace(b"-2.0", b"-1e999")),
    "huge logprob": Answer(completion().data.replace(b"-2.0", b"-1e30")),
    "negative usage": Answer(completion().data.replace(b": 11", b": -11")),
    "huge usage": Answer(completion().data.replace(b": 11", b": 1e30")),
}


@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE)
def test_what_may_pass_is_asked_again(trouble: Answer) -> None:
    clock = Clock()
    (reply,), server = ask([trouble, completion("hello")], clock=clock)
    assert reply.text == "hello"
    assert len(server.bodies) == 2
    assert server.bodies[0] == server.bodies[1]
    assert [0.5 <= pause <= 1.0 for pause in clock.pauses] == [True]


def test_a_server_that_drips_is_left_at_the_deadline() -> None:
    clock = Clock()
    (reply,), server = ask([Answer(completion().data, drip=True), completion()], clock=clock, request_seconds=1.0)
    assert reply.text == "hello"
    assert len(server.bodies) == 2
    (error,), _ = ask([Answer(completion().data, drip=True)], request_seconds=0.05, retries=1)
    for part in ("0.05 s (policy.endpoint.request_seconds)", "(2 attempts)"):
        assert part in str(error)


def test_an_endless_answer_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "LARGEST_BODY", 1000)
    (error,), _ = ask([completion("x" * 2000)], retries=0)
    assert "larger than 1000 bytes" in str(error)


@pytest.mark.parametrize(
    ("header", "waited"),
    [
        *[("7", 7.0), ("0.25", None), ("-3", None), ("nan", None), ("soon", None)],
        ("Mon, 20 Nov 99999999999999999999 19:12:08 GMT", None),
        ("Mon, 20 Nov 2026 19:12:08 +99999999999999999", None),
    ],
)
def test_a_wait_that_is_asked_for_is_honoured(header: str, waited: float | None) -> None:
    clock = Clock()
    (reply,), _ = ask([Answer(status=429, headers={"Retry-After": header}), completion()], clock=clock)
    assert reply.text == "hello"
    assert clock.pauses == [waited] if waited else 0.5 <= clock.pauses[0] <= 1.0


def test_a_wait_until_a_date_is_honoured_and_one_without_end_is_a_refusal() -> None:
    clock = Clock()
    past = Answer(status=503, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})
    (reply,), _ = ask([past, completion()], clock=clock)
    assert reply.text == "hello"
    assert clock.pauses[0] <= 1.0
    for header in ("86400", "inf", "Wed, 21 Oct 2115 07:28:00 GMT"):
        (error,), server = ask([Answer(status=429, headers={"Retry-After": header})])
        assert isinstance(error, MissingError)
        assert "asks to wait" in str(error)
        assert len(server.bodies) == 1


def test_pauses_grow_and_depend_on_the_request_alone() -> None:
    def pauses(seed: int) -> list[float]:
        clock = Clock()
        with ChatServer([BROKEN]) as server, refusal(4, ("500", "10 attempts")):
            with_policy(server.url, lambda policy: policy.respond(make_request(seed=seed)), clock, retries=9)
        return clock.pauses

    first = pauses(1)
    assert first == pauses(1) != pauses(2)
    for pause, longest in zip(first, [1, 2, 4, 8, 16, 32, 60, 60, 60], strict=True):
        assert longest / 2 <= pause <= longest


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_what_will_not_pass_is_asked_once_and_is_one_failed_request(status: int) -> None:
    refusal = Answer({"error": {"message": "no\n\x1b[31m such thing"}}, status)
    (_, error, after), server = ask(lambda body, before: refusal if before == 1 else completion(), seeds=3)
    assert isinstance(error, PolicyError)
    assert str(error) == f"{server.url}/chat/completions: answered {status}: no [31m such thing"
    assert after.text == "hello"
    assert len(server.bodies) == 3


def test_a_request_that_fails_for_good_later_is_one_failed_request() -> None:
    clock = Clock()
    (_, error, after), server = ask(
        lambda body, before: BROKEN if 1 <= before <= 3 else completion(), seeds=3, clock=clock
    )
    assert isinstance(error, PolicyError)
    assert "answered 500 (3 attempts)" in str(error)
    assert after.text == "hello"
    assert len(server.bodies) == 5


def test_an_endpoint_that_is_down_ends_the_command_at_once() -> None:
    with ChatServer([completion()]) as server:
        url = server.url
    clock = Clock()
    ask_it = partial(with_policy, url, lambda policy: policy.respond(make_request()), clock)
    refused(ask_it, 4, f"{url}/chat/completions", remedy="--base-url")
    assert clock.pauses == []


def test_a_missing_or_refused_key_ends_the_command_and_is_never_shown() -> None:
    echo = Answer({"error": {"message": "Incorrect API key: sk-secret"}}, 401)
    (error, second), server = ask([echo], seeds=2, key="sk-secret")
    assert isinstance(error, MissingError)
    assert isinstance(second, MissingError)
    assert all(part in str(error) for part in ("401", "key: ***", "OPENAI_API_KEY"))
    assert len(server.bodies) == 1, "after that nothing is asked any more"
    (error,), _ = ask([Answer(status=403)], api_key_variable="MY_KEY")
    assert all(part in str(error) for part in ("403", "MY_KEY"))


def test_a_redirect_is_not_followed() -> None:
    with ChatServer([completion()]) as other:
        (error,), _ = ask([Answer(status=307, headers={"Location": f"{other.url}/chat/completions"})], key="sk-secret")
    assert isinstance(error, MissingError)
    assert f"answered 307: it moved to {other.url}" in str(error)
    assert other.bodies == []


def test_an_endpoint_that_dies_ends_the_command_after_some_failures() -> None:
    outcomes, server = ask(lambda body, before: BROKEN if before > 20 else completion(), seeds=40, retries=0)
    errors = outcomes[21:]
    assert [type(error).__name__ for error in errors[: FAILURES_IN_A_ROW + 1]] == [
        *["RequestFailed"] * (FAILURES_IN_A_ROW - 1),
        *["MissingError"] * 2,
    ]
    assert all(part in str(errors[-1]) for part in (str(FAILURES_IN_A_ROW), "--resume"))
    assert len(server.bodies) == 21 + FAILURES_IN_A_ROW


def test_failures_between_answers_never_end_the_command() -> None:
    outcomes, _ = ask(lambda body, before: BROKEN if before % 4 else completion(), seeds=60, retries=0)
    assert not any(isinstance(outcome, MissingError) for outcome in outcomes)


def test_requests_start_no_faster_than_the_rate() -> None:
    clock, started = Clock(), list[float]()

    def script(body: dict[str, Any], before: int) -> Answer:
        started.append(clock.now)
        return completion() if before != 3 else BROKEN

    async def work(policy: OpenAIPolicy) -> list[Reply]:
        return await asyncio.gather(*(policy.respond(make_request(seed=seed)) for seed in range(8)))

    with ChatServer(script) as server:
        with_policy(server.url, work, clock, requests_per_minute=30)
    assert len(started) == 9, "another attempt is another request"
    assert clock.now - 100 >= 8 * 2.0


def test_an_interrupted_request_ends_at_once() -> None:
    async def work(policy: OpenAIPolicy) -> None:
        task = asyncio.create_task(policy.respond(make_request()))
        assert await asyncio.to_thread(server.answering.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 1)

    with ChatServer([Answer(completion().data, drip=True)]) as server:
        with_policy(server.url, work)


@pytest.mark.parametrize(
    "url",
    [
        None,
        "localhost:8000/v1",
        "ftp://host/v1",
        "http://",
        "http://host:99999/v1",
        "http://host/v1?key=1",
        "http://me:secret@host/v1",
    ],
)
def test_a_base_url_that_is_none_is_refused(url: str | None) -> None:
    settings = PolicySettings(endpoint=EndpointSettings(base_url=url))
    line = refused(lambda: OpenAIPolicy(settings), names="policy.endpoint.base_url")
    assert "secret" not in line


@pytest.mark.parametrize("key", ["two\nlines", "schlüssel"])
def test_a_key_that_no_header_can_hold_is_refused(key: str) -> None:
    settings = PolicySettings(endpoint=EndpointSettings(base_url="http://host/v1"))
    assert key not in refused(lambda: OpenAIPolicy(settings, key), names="OPENAI_API_KEY")


class HeldClock(Clock):
    """Time that stands still until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.sleepers, self.release = asyncio.Semaphore(0), asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        until = self.now + seconds
        self.pauses.append(seconds)
        self.sleepers.release()
        await self.release.wait()
        self.now = max(self.now, until)


def test_a_wait_that_is_asked_for_holds_up_all_requests() -> None:
    clock = HeldClock()
    limited = Answer(status=429, headers={"Retry-After": "9"})

    async def work(policy: OpenAIPolicy) -> None:
        await policy.respond(make_request())
        first = asyncio.create_task(policy.respond(make_request(seed=1)))
        await clock.sleepers.acquire()
        second = asyncio.create_task(policy.respond(make_request(seed=2)))
        waits = asyncio.create_task(clock.sleepers.acquire())
        await asyncio.wait([second, waits], return_when=asyncio.FIRST_COMPLETED)
        assert not second.done()
        assert clock.pauses == [9.0, 9.0]
        assert len(server.bodies) == 2
        clock.release.set()
        await asyncio.gather(first, second, waits)

    with ChatServer(lambda body, before: limited if before == 1 else completion()) as server:
        with_policy(server.url, work, clock)
