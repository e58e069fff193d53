"""The vllm policy: an engine of vLLM in this process answers all that is waiting.

Requests go to it one by one, since it batches by itself. It keeps the keys and values
of prompts, so that siblings are read once.
"""

from agentcli.errors import PromptTooLongError
from agentcli.policies.chat_tokens import ChatTokens, Prompted
from agentcli.policies.protocol import Reply, Request
from agentcli.policies.reload_check import Sample, check_weights_of_engine
from agentcli.policies.vllm_engine import VllmEngine
from agentcli.policies.waiting import Waiting
from agentcli.records.files import derive_seed

PROBES = 4
"""Responses that are scored after a reload."""
PROBE_PROMPT, PROBE_RESPONSE = 256, 16
"""Most tokens of each."""


class VllmPolicy(Waiting):
    """Samples responses from an engine that stays up over the iterations of a loop."""

    def __init__(self, engine: VllmEngine, tokens: ChatTokens) -> None:
        super().__init__()
        self.tokens = tokens
        self._engine = engine
        self._probes = {"": tokens.prompt_ids("hello")[:PROBE_PROMPT]}
        """A greeting, and the first prompts that were asked, by their text."""

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
        """Answers with another checkpoint from now on.

        Raises PolicyError where its responses are not those of the checkpoint.
        """
        await self._engine.load(checkpoint)
        samples: list[Sample] = []
        for number, prompt in enumerate(self._probes.values()):
            item = Prompted(prompt, derive_seed(0, number), 1.0, PROBE_RESPONSE)
            samples.append((item, await self._sample(item)))
        check_weights_of_engine(checkpoint, samples, self._engine.dtype)

    async def rest(self) -> None:
        """Frees the GPU for a training, as policy.vllm.sleep says."""
        await self._engine.rest()

    async def close(self) -> None:
        """Ends the engine's processes."""
        self._engine.close()

    async def _sample(self, item: Prompted) -> Reply:
        response, logprobs = await self._engine.generate(item, self.tokens.ends)
        return self.tokens.reply(item, response, logprobs)
