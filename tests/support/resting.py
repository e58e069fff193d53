"""A policy that can load other weights, and what is asked of it."""

import pytest
from agentcli.stages import backend
from scripted import SeededPolicy


class Resting(SeededPolicy):
    """Says what was asked of it."""

    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self._said = said

    async def load(self, checkpoint: str) -> None:
        self._said.append("load")

    async def rest(self) -> None:
        self._said.append("rest")

    async def close(self) -> None:
        self._said.append("close")


def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What will be asked of every policy that a workshop starts."""
    said: list[str] = []

    def start(*_: object) -> Resting:
        said.append("start")
        return Resting(said)

    monkeypatch.setattr(backend, "start_policy", start)
    return said
