"""Caches a policy's replies on disk, so that no question is paid for twice.

A reply is stored under the hash of everything it depends on: the model, the message,
its pictures and the sampling settings. A greedy reply does not depend on the seed. Only
usable replies are stored; for any other, the policy is asked again, also in a later
run.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from agentcli.policies.protocol import Policy, Reply, Request
from agentcli.records.files import read_json, write_atomic
from agentcli.records.regular import is_there
from agentcli.records.settings import PolicySettings


class KeptReplies:
    """The policy `inner` with a folder in which its `usable` replies are stored."""

    def __init__(
        self,
        inner: Policy,
        settings: PolicySettings,
        folder: Path,
        usable: Callable[[Reply], bool],
    ) -> None:
        self.seconds = 0.0
        self._usable = usable
        self._inner = inner
        self._folder = folder
        model: list[Any] = [
            settings.kind,
            settings.model,
            settings.adapter,
            settings.endpoint.base_url,
            settings.endpoint.logprobs,
        ]
        # Left out where there are none: replies kept before the setting existed
        # keep their names.
        if settings.chat_template_kwargs:
            model.append(settings.chat_template_kwargs)
        self._model = msgspec.json.encode(model)

    async def respond(self, request: Request) -> Reply:
        """The stored reply, else a new one.

        Raises what the policy raises, DataError for a stored reply that cannot be read,
        and WriteError.
        """
        path = self._path(request)
        if is_there(path):
            return read_json(path, Reply)
        reply = await self._inner.respond(request)
        if self._usable(reply):
            write_atomic(path, msgspec.json.encode(reply))
        # A reply from the folder costs no time of the policy.
        self.seconds = self._inner.seconds
        return reply

    async def close(self) -> None:
        await self._inner.close()

    def _path(self, request: Request) -> Path:
        """The file for the reply to a request."""
        seed = request.seed if request.temperature else None
        sampling = [request.temperature, request.max_tokens, seed]
        digest = hashlib.sha256(self._model)
        digest.update(msgspec.json.encode([request.message.text, sampling]))
        for picture in request.message.pictures:
            digest.update(hashlib.sha256(picture.png).digest())
        name = digest.hexdigest()
        return self._folder / name[:2] / f"{name}.json"
