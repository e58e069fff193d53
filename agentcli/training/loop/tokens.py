"""Sampled steps as token ids: prompts through the chat template, responses as sampled.

Training uses exactly the sampled tokens: a response is never tokenised again.
"""

from functools import cache, partial
from typing import Any

from agentcli.environments.protocol import Picture
from agentcli.errors import DataError
from agentcli.policies.chat import prompt_ids
from agentcli.policies.sight import Eyesight
from agentcli.prompts.protocol import Message
from agentcli.training.loop.pictures import refuse_pictures


class StepTokeniser:
    """Gives the token ids of steps to train on. Each prompt is tokenised once."""

    def __init__(
        self, tokenizer: Any, model: Any, name: str, sight: Eyesight | None = None
    ) -> None:
        """Messages call the model `name`.

        `sight` reads the prompts, for a vision model.
        """
        self.sight = sight
        self._prompt_ids = cache(partial(prompt_ids, tokenizer))
        self._vocabulary: int = model.get_input_embeddings().num_embeddings
        self._name = name

    def __call__(
        self,
        prompt: str,
        response: list[int],
        place: str,
        pictures: tuple[Picture, ...] = (),
    ) -> tuple[list[int], list[int]]:
        """Token ids of prompt and response.

        Raises DataError for an unknown token, and for pictures that the model cannot
        read.
        """
        if min(response) < 0 or max(response) >= self._vocabulary:
            raise DataError(
                f"{place}.token_ids: {max(response)} is not a token of {self._name} "
                f"({self._vocabulary} tokens); these trees were sampled from another "
                "model"
            )
        if self.sight is None:
            refuse_pictures(pictures, place, self._name)
            return self._prompt_ids(prompt), response
        return self.sight.prompt_ids(Message((prompt, *pictures))), response
