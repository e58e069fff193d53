"""The protocol of all policies: an async function from a request to a reply.

Each policy does its own batching.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import msgspec

from agentcli.errors import PolicyError, UsageError
from agentcli.prompts.protocol import Exchange, Message, Moment, ResponseForm
from agentcli.records.faults import shown
from agentcli.records.types import StopReason

UNSEEN = (
    "policy.kind: this policy reads no pictures, and the world shows some; choose a "
    "--policy that reads them"
)


class Request(msgspec.Struct, kw_only=True, frozen=True):
    """One decision to make."""

    message: Message
    """The user message."""
    turns: tuple[Exchange, ...] = ()
    """The messages and answers before this one, the latest last. Where the last step's
    message began anew, only that step.
    """
    moment: Moment
    """The situation, for policies without a model."""
    states: tuple[Any, ...]
    """The pool's handle of the state of every copy (for the expert, which asks the
    engine for a plan); empty for a teacher.
    """
    form: ResponseForm
    """The form in which policies without a model write their response."""
    seed: int
    """64-bit; the same request with the same seed gives the same reply, whatever else
    is in the batch.
    """
    episode_seed: int
    """64-bit; the same for all steps of a trajectory (used for an expert's habits)."""
    temperature: float
    max_tokens: int

    @property
    def continued(self) -> tuple[Exchange, ...]:
        """The conversation that the message continues; empty if it begins one."""
        return self.turns if self.message.continues else ()

    @property
    def prompt(self) -> str:
        """The message, for a policy that reads only text.

        Raises UsageError if it contains pictures.
        """
        if self.message.pictures:
            raise UsageError(UNSEEN)
        return self.message.text


class Reply(msgspec.Struct, kw_only=True, frozen=True):
    """One sampled response."""

    text: str
    """Without the end-of-turn token."""
    token_ids: tuple[int, ...] = ()
    """Includes the end-of-turn token if `stop` is STOP."""
    logprobs: tuple[float, ...] = ()
    """Natural log of softmax(logits / logprob_temperature) at the sampled ids, rounded
    to 6 decimals.
    """
    temperature: float = 1.0
    """T at which the response was sampled, as requested; 1 if no model was asked."""
    logprob_temperature: float = 1.0
    """T of the distribution that `logprobs` refer to. It equals `temperature`, or is 1
    for greedy responses and for endpoints that return log-probabilities before
    tempering.
    """
    prompt_tokens: int = 0
    shared_prompt_tokens: int = 0
    """Length of the prefix that the prompt shares with what was run for the step
    before, in tokens, if the policy knows it.
    """
    generated_tokens: int = 0
    """Number of response tokens if token_ids does not contain them; the ledger then
    counts these.
    """
    stop: StopReason = StopReason.NONE
    mask: str | None = None
    """Why this response must not be imitated (noise of a demonstrator)."""


class Policy(Protocol):
    """Answers prompts."""

    seconds: float
    """Wall-clock time that this process has spent computing replies so far."""

    async def respond(self, request: Request) -> Reply: ...

    async def close(self) -> None: ...


async def reply_within(most_bytes: int, policy: Policy, request: Request) -> Reply:
    """The reply of a policy. Raises PolicyError for one that is too long to store.

    `most_bytes` is environment.most_text_bytes; a token has at least one byte.
    """
    reply = await policy.respond(request)
    size = max(len(reply.text.encode(errors="replace")), len(reply.token_ids))
    if size > most_bytes:
        raise PolicyError(
            f"the response has {size} bytes, more than {most_bytes}; allow more with "
            f"--set environment.most_text_bytes=N; it begins {shown(reply.text[:60])!r}"
        )
    return reply


@runtime_checkable
class Reloadable(Policy, Protocol):
    """A policy that can load other weights.

    It does not have to be restarted for every iteration of a loop.
    """

    async def load(self, checkpoint: str) -> None:
        """Uses the model of this directory from now on.

        Called while no request is open. The replies are the same as from a policy
        started with that directory. Raises what loading a model raises.
        """

    async def rest(self) -> None:
        """Frees memory that a training may need, until the next `load`."""


class Waiting:
    """The time that a policy waits for a model in another process; it inherits this."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Time during which at least one request was waiting."""
        self._waiting = 0
        """Number of requests that are waiting for an answer."""
        self._since = 0.0
        """When `seconds` was last updated."""

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Adds the time of the block to `seconds`; overlapping waits count once."""
        self._count()
        self._waiting += 1
        try:
            yield
        finally:
            self._count()
            self._waiting -= 1

    def _count(self) -> None:
        now = time.perf_counter()
        if self._waiting:
            self.seconds += now - self._since
        self._since = now
