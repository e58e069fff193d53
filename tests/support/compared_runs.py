"""Two finished runs of the toy world to compare."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import refusal
from agentcli.analysis.compare import compare
from agentcli.exploration.settings import evaluation_class
from agentcli.records.files import write_json
from agentcli.records.settings import (
    EnvironmentSettings,
    PolicySettings,
    PromptSettings,
    Settings,
)
from agentcli.reports.standing import Progress
from agentcli.stages.session import Invocation
from command_line import agentcli
from fitting import fitting
from staged import evaluate, rollout


def toy(kind: str = "random", tasks: int = 12, **more: Any) -> Settings:
    """`search` always goes east and wins all but the locked corridors, `random` less."""
    evaluation = {"split": "test", **more.pop("evaluation", {})}
    fitted = fitting(**{"method": "chain", "leaves": 3, "roots": 2, **more.pop("rollout", {})})
    return Settings(
        environment=EnvironmentSettings(name="toy_world:ToyWorld", max_steps=8, options={"tasks": tasks}),
        prompt=PromptSettings(style="compact"),
        policy=PolicySettings(kind=kind),
        rollout=fitted,
        evaluation=evaluation_class(fitted.method)(**evaluation),
        **more,
    )


def make_two(folder: Path) -> None:
    """Runs a and b, each with trees and an evaluation."""
    for name, settings in (
        ("a", toy(rollout={"method": "chain"})),
        ("b", toy("search", rollout={"method": "spark", "branch": "fixed:.5"})),
    ):
        rollout(settings, folder / name, Invocation([]), model=None)
        evaluate(settings, folder / name, Invocation([]), model=None)


def compared(*places: Path | str, labels: tuple[str, ...] = ()) -> dict[str, Any]:
    """The comparison as `--json` prints it."""
    plain: dict[str, Any] = msgspec.to_builtins(compare([Path(place) for place in places], labels, Progress()))
    return plain


def edit(path: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """The JSON of a file changed."""
    value = json.loads(Path(path).read_bytes())
    change(value)
    write_json(Path(path), value)


def refused(*words: str, code: int) -> str:
    """The one line that `agentcli compare` says."""
    return refusal.refused(agentcli("compare", *words), code)
