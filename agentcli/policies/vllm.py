"""The vllm policy: a vLLM engine in this process answers all waiting requests.

Requests are passed to it one by one, since it batches them itself. It caches the keys
and values of prompts, so that siblings' prompts are computed once. Of several replicas
one answers all requests of a task.
"""

from zlib import crc32

from agentcli.errors import PromptTooLongError
from agentcli.policies.chat_tokens import ChatTokens
from agentcli.policies.protocol import Reply, Request
from agentcli.policies.vllm_engine import VllmEngine
from agentcli.policies.waiting import Waiting


class VllmPolicy(Waiting):
    """Samples responses from an engine that keeps running between iterations."""

    def __init__(self, engine: VllmEngine, tokens: ChatTokens) -> None:
        super().__init__()
        self.tokens = tokens
        self._engine = engine

    async def respond(self, request: Request) -> Reply:
        """Samples one response.

        Raises PromptTooLongError for a prompt longer than policy.max_prompt_tokens, or
        one that leaves no room for the response, and MissingError for a dead engine.
        """
        item = self.tokens.prompted(request)
        room = self._engine.max_model_len - item.max_tokens
        if len(item.prompt) > room:
            remedy = "lower policy.max_tokens (the model is made for no more)"
            if self._engine.can_be_longer:
                remedy = "raise policy.vllm.max_model_len"
            raise PromptTooLongError(
                f"the prompt has {len(item.prompt)} tokens, and the engine room for "
                f"{room} beside policy.max_tokens; {remedy}, or shorten prompts with "
                "--history"
            )
        task = request.moment.copies[0].task.id
        replica = replica_of(task, self._engine.replicas)
        with self.waiting():
            response, logprobs = await self._engine.generate(
                item, self.tokens.ends, replica
            )
        reply = self.tokens.reply(item, response, logprobs)
        return self.tokens.with_shared_tokens(reply, request)

    async def load(self, checkpoint: str) -> None:
        """Uses another checkpoint from now on.

        Raises PolicyError if the engine then holds other weights.
        """
        await self._engine.load(checkpoint)

    async def rest(self) -> None:
        """Frees the GPU for a training, as set by policy.vllm.sleep."""
        await self._engine.rest()

    async def close(self) -> None:
        """Ends the engine's processes."""
        self._engine.close()


def replica_of(task: str, replicas: int) -> int:
    """The replica for the task with this id, the same in every run."""
    return crc32(task.encode()) % replicas
