"""The one protocol of policies: a request in, a reply out, awaited.

Batching is the policy's own business.
"""

from typing import Any, Protocol, runtime_checkable

import msgspec

from agentcli.errors import UsageError
from agentcli.prompts.protocol import Message, Moment, ResponseForm
from agentcli.records.types import StopReason


class Request(msgspec.Struct, kw_only=True, frozen=True):
    """One decision to be made."""

    message: Message
    """The user message."""
    moment: Moment
    """For policies without a model."""
    states: tuple[Any, ...]
    """The pool's handle of every copy's state (for the expert, which asks the engine
    for a plan); empty for a teacher.
    """
    form: ResponseForm
    """How the response is to be written, for policies without a model."""
    seed: int
    """64-bit; the same request with the same seed gives the same reply, whoever else is
    in the batch.
    """
    episode_seed: int
    """64-bit; the same for all steps of one trajectory (habits of an expert)."""
    temperature: float
    max_tokens: int
    parent_prompt: str = ""
    """The prompt of the step before, for Reply.shared_prompt_tokens; "" where nothing
    is asked about it.
    """

    @property
    def prompt(self) -> str:
        """The message, for a policy that reads text only.

        Raises UsageError where it holds pictures.
        """
        if self.message.pictures:
            raise UsageError(
                "policy.kind: this policy reads no pictures, and the world shows "
                "some; choose a --policy that reads them"
            )
        return self.message.text


class Reply(msgspec.Struct, kw_only=True, frozen=True):
    """One sampled response."""

    text: str
    """Without the end-of-turn token."""
    token_ids: tuple[int, ...] = ()
    """With the end-of-turn token when `stop` is STOP."""
    logprobs: tuple[float, ...] = ()
    """Natural log of softmax(logits / logprob_temperature) at the sampled ids, rounded
    to 6 decimals.
    """
    temperature: float = 1.0
    """T that the response was sampled at, as the request asked; 1 where no model was
    asked.
    """
    logprob_temperature: float = 1.0
    """T of the distribution that `logprobs` are of: `temperature`, except for greedy
    responses (1) and for endpoints that return log-probabilities before tempering (1).
    """
    prompt_tokens: int = 0
    shared_prompt_tokens: int = 0
    """With how many of the tokens of `parent_prompt` the prompt begins, where the
    policy knows them.
    """
    generated_tokens: int = 0
    """Tokens of the response where token_ids does not hold them: what the ledger counts
    then.
    """
    stop: StopReason = StopReason.NONE
    mask: str | None = None
    """Why this response must not be imitated (noise of a demonstrator)."""


class Policy(Protocol):
    """Answers prompts."""

    seconds: float
    """Time spent computing replies so far (wall clock of this process)."""

    async def respond(self, request: Request) -> Reply: ...

    async def close(self) -> None: ...


@runtime_checkable
class Reloadable(Policy, Protocol):
    """A policy that can take other weights.

    It need not be started anew for every iteration of a loop.
    """

    async def load(self, checkpoint: str) -> None:
        """Answers with the model of this directory from now on.

        Called while no request is open. The replies are those of a policy started from
        the same directory. Raises what loading a model raises.
        """

    async def rest(self) -> None:
        """Gives memory that a training may need to it, until the next `load`."""
