"""Corridors whose engine judges tools: a world as another package brings it, without the built-in tools."""

from collections.abc import Mapping

from agentcli.environments.protocol import Card, Verdict
from toy_world import ToyEngine, ToyWorld


class JudgingWorld(ToyWorld):
    """The toy world with two tools, a lamp and a map."""

    card = Card(name="judging", role="You are an agent.", splits=("train", "test"), evaluation_split="test")

    @property
    def tools(self) -> Mapping[str, str]:
        return {"lamp": "lights a room", "map": "shows the way"}

    def engine(self) -> "JudgingEngine":
        return JudgingEngine(self)


class JudgingEngine(ToyEngine):
    """The lamp is worth the number of the room, the map the length of the argument."""

    def judge(self, argument: str) -> Verdict:
        scores = {"lamp": float(self.room), "map": float(len(argument)), "cot": 1.0}
        return Verdict(scores=scores, process_ok=argument != "")
