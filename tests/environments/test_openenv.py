"""Worlds that were not written here: Gymnasium's lake, and the same lake behind OpenEnv's own server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openenv_lake
import pytest
from agentcli.environments.registry import make_world
from agentcli.records.files import read_records
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Outcome, Tree
from command_line import agentcli, chained
from processes import as_here
from refusal import refused
from served_worlds import scripted, seen

MOVES = ["left", "down", "right", "up"]
OPTIONS = "actions: [left, down, right, up], seeds: {train: 40, test: 40}"
SETTINGS = """
environment: {{name: "{name}", max_steps: 8, options: {{{options}}}}}
policy: {{temperature: 1.0, max_tokens: 16}}
prompt: {{history: 0}}
demos: {{count: {demos}, policy: random}}
sft: {{model: tiny, updates: {updates}, learning_rate: 3.0e-3}}
rollout: {{leaves: 16, tasks_per_step: 2}}
credit: {{method: rewardflow, group: all}}
train: {{learning_rate: 2.0e-3, rows_per_update: 32, beta: 0.0}}
run: {{iterations: {iterations}}}
evaluation: {{tasks: 40}}
"""
SFT = (
    ("demos", "--preset", "./toy.yaml", "-o", "runs/demos", "-q"),
    ("sft", "runs/demos", "-o", "runs/sft", "-q"),
)


@contextmanager
def openenv_server(*words: str) -> Iterator[str]:
    """The address of OpenEnv's own server."""
    command = [sys.executable, openenv_lake.__file__, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=as_here()) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


@pytest.fixture(scope="module")
def lake() -> Iterator[str]:
    with openenv_server() as url:
        yield url


def settings(url: str, **options: object) -> EnvironmentSettings:
    return EnvironmentSettings(name=url, options=options)


def test_its_sessions_are_played(lake: str) -> None:
    world = make_world(settings(lake, actions=MOVES, text="tile"))
    assert world.card.name == "lake"
    engine = world.engine()
    first = engine.start(world.tasks("test")[0]).observation
    assert (first.text, first.actions) == ("0", tuple(MOVES))
    assert not engine.step("fly").accepted
    way = [engine.step(action) for action in ("right", "right", "down", "down")]
    assert [seen.text for seen in way] == ["1", "2", "5", "8"]
    assert (way[-1].reward, way[-1].end) == (1.0, "success")
    engine.close()  # type: ignore[attr-defined]


def test_without_options_numbers_and_all_fields_are_shown(lake: str) -> None:
    world = make_world(settings(lake))
    engine = world.engine()
    assert engine.start(world.tasks("train")[0]).observation.text == "tile: 0"
    assert engine.step("2").text == "tile: 1"
    for written in ("two", "--2", "-", "2.0", "9" * 5000):
        assert not engine.step(written).accepted
    engine.close()  # type: ignore[attr-defined]


def test_a_field_of_numbers_takes_finite_fractions() -> None:
    """An integer is sent as one."""
    schema = {"action": {"properties": {"throttle": {"type": "number"}}}, "observation": {}}

    def echoing(message: dict[str, Any], count: int) -> dict[str, Any]:
        if message["type"] == "state":
            return {"type": "state", "data": {}}
        return seen(json.dumps(message["data"].get("throttle")))

    with scripted(echoing, schema=schema) as url:
        world = make_world(settings(url))
        engine = world.engine()
        engine.start(world.tasks("train")[0])
        texts = [engine.step(written).text for written in ("2.5", "-0.5", "1e3", "7")]
        assert texts == ["text: 2.5", "text: -0.5", "text: 1000.0", "text: 7"]
        for written in ("two", "nan", "inf", "1e999", "9" * 5000):
            assert not engine.step(written).accepted
        engine.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"text": "tiles"}, ("environment.options.text", "tile")),
        ({"action": "moves"}, ("environment.options.action", "move")),
        ({"act": "move"}, ("environment.options.act", "action")),
        ({"actions": ["left", "up", "left", "right"]}, ("environment.options.actions", "4 names")),
    ],
)
def test_a_bad_option_is_refused(options: dict[str, object], names: tuple[str, ...], lake: str) -> None:
    refused(lambda: make_world(settings(lake, **options)), names=names)


def test_one_session_is_enough() -> None:
    """Its engine is taken over where several states are wanted at once, and each is replayed."""
    options = ("--set", "environment.options={text: tile, actions: [left, down, right, up]}")
    with openenv_server("1") as url:
        checked = agentcli("env", "check", url, "--tasks", "2", "--json", "-q", *options)
    assert checked.code == 0, checked
    rows = [json.loads(line) for line in checked.stdout.splitlines()]
    assert [row["problem"] for row in rows] == [None, None]


@pytest.mark.slow
def test_a_world_of_openenv_is_trained_on(lake: str, tmp_path: Path) -> None:
    """Rollout, credit, training and evaluation."""
    text = SETTINGS.format(name=lake, options=f"{OPTIONS}, text: tile", demos=8, updates=10, iterations=1)
    model = ("--model", "runs/sft/checkpoint", "--preset", "./toy.yaml")
    further = (
        ("rollout", *model, "--tasks", "2", "-o", "runs/x", "-q"),
        ("assign-credit", "runs/x", "-q"),
        ("train", "runs/x", "-q"),
        ("eval", "runs/x", "--tasks", "2", "-q"),
    )
    chained(tmp_path, text, (*SFT, *further))
    trees = list(read_records(tmp_path / "runs/x/trees.jsonl", Tree))
    leaves = [step.outcome for tree in trees for step in tree.steps if step.outcome]
    assert leaves
    assert Outcome.ERRORED not in leaves
    assert (tmp_path / "runs/x/checkpoint").is_dir()


def successes(folder: Path, run: str) -> int:
    """How many of the evaluated episodes of a run succeeded."""
    (file,) = (folder / run / "evaluation").glob("*.jsonl")
    lines = file.read_text(encoding="utf-8").splitlines()
    return sum(json.loads(line)["outcome"] == "success" for line in lines)


@pytest.mark.slow
def test_a_policy_learns_a_world_of_gymnasium(tmp_path: Path) -> None:
    """It imitates random walks that reached the goal, then practises with RewardFlow, where tiles are states of the graph.

    Steps into the shore change nothing. As members of the groups they cost something; under eq. 5 this loop unlearns.
    """
    options = f"{OPTIONS}, kwargs: {{desc: [SFF, FHF, FFG], is_slippery: false}}"
    text = SETTINGS.format(name="gym:FrozenLake-v1", options=options, demos=40, updates=60, iterations=8)
    evaluate = ("--set", "evaluation.temperature=1.0", "-q")
    further = (
        ("eval", "runs/sft", *evaluate),
        ("run", "--preset", "./toy.yaml", "--model", "runs/sft/checkpoint", "-o", "runs/rl", "-q"),
        ("eval", "runs/rl", *evaluate),
    )
    chained(tmp_path, text, (*SFT, *further))
    before, after = (successes(tmp_path, run) for run in ("runs/sft", "runs/rl"))
    assert after >= before + 10, (before, after)
