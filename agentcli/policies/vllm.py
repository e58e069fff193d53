"""The vllm policy: a vLLM engine in this process answers all waiting requests.

Requests are passed to it one by one, since it batches them itself. It caches the keys
and values of prompts, so that siblings' prompts are computed once.
"""

from agentcli.errors import PromptTooLongError
from agentcli.policies.chat_tokens import ChatTokens, Prompted
from agentcli.policies.protocol import Reply, Request
from agentcli.policies.reload_check import Sample, check_weights_of_engine
from agentcli.policies.vllm_engine import VllmEngine
from agentcli.policies.waiting import Waiting
from agentcli.records.files import derive_seed

PROBES = 4
"""Number of responses that are scored after a reload."""
PROBE_PROMPT, PROBE_RESPONSE = 256, 16
"""Most tokens of each prompt and response."""


class VllmPolicy(Waiting):
    """Samples responses from an engine that keeps running between iterations."""

    def __init__(self, engine: VllmEngine, tokens: ChatTokens) -> None:
        super().__init__()
        self.tokens = tokens
        self._engine = engine
        self._probes = {"": tokens.prompt_ids("hello")[:PROBE_PROMPT]}
        """A greeting and the first prompts that were asked, by their text."""

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
        if len(self._probes) < PROBES:
            self._probes[request.prompt] = item.prompt[:PROBE_PROMPT]
        with self.waiting():
            reply = await self._sample(item)
        return self.tokens.with_shared_tokens(reply, request)

    async def load(self, checkpoint: str) -> None:
        """Uses another checkpoint from now on.

        Raises PolicyError if its responses do not come from the checkpoint.
        """
        await self._engine.load(checkpoint)
        samples: list[Sample] = []
        for number, prompt in enumerate(self._probes.values()):
            item = Prompted(prompt, derive_seed(0, number), 1.0, PROBE_RESPONSE)
            samples.append((item, await self._sample(item)))
        check_weights_of_engine(checkpoint, samples, self._engine.dtype)

    async def rest(self) -> None:
        """Frees the GPU for a training, as set by policy.vllm.sleep."""
        await self._engine.rest()

    async def close(self) -> None:
        """Ends the engine's processes."""
        self._engine.close()

    async def _sample(self, item: Prompted) -> Reply:
        response, logprobs = await self._engine.generate(item, self.tokens.ends)
        return self.tokens.reply(item, response, logprobs)
