"""The same page for a run of every world and of every method: it holds what the files hold, and nothing in it is made for one."""

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from agentcli import assign
from agentcli.analysis.page.texts import visible
from agentcli.environments.registry import world_names
from agentcli.exploration.registry import method_names
from agentcli.exploration.settings import evaluation_class
from agentcli.policies.registry import POLICIES
from agentcli.records.files import read_records
from agentcli.records.pictures import read_picture
from agentcli.records.siblings import named_action
from agentcli.records.types import Tree
from agentcli.reports.page.document import script
from alfworld_games import game_cache  # noqa: F401
from command_line import agentcli, succeeded
from grown_runs import roll, toy
from pages import prompts_of, rows_of, unpacked, viewed
from refusal import refused
from staged import evaluate

OPTIONS: dict[str, tuple[str, ...]] = {
    "alfworld": ("scenes_per_room=3", "clutter=5", "distractor_instances=2", "games.train=60"),
    "webshop": ("products=40", "tests=20"),
    "sokoban": ("pictures=true",),
    "ezpoints": ("pictures=true",),
}
"""What makes a world small, or draw."""
JUDGED = ("--method", "rare-tool")
"""The method that needs a world with tools."""
SLOW = {"alfworld", "scienceworld", "textworld"}


def rolled(run: Path, world: str) -> Path:
    """Two trees of a world, grown by its expert."""
    options = [word for option in OPTIONS.get(world, ()) for word in ("--set", f"environment.options.{option}")]
    small = ("--tasks", "2", "--max-steps", "4", "--leaves", "2", "--policy", "expert")
    words = JUDGED if world == "tool_qa" else ()
    succeeded("rollout", "--env", world, *small, *options, *words, "-o", str(run), "-q")
    return run


def check_page(run: Path, page: Path) -> None:
    """Every step of the files stands in the page, with its pictures."""
    index, trees = viewed(page, str(run))
    held = list(read_records(run / "trees.jsonl", Tree))
    assert [row["task"] for row in rows_of(index)] == [visible(tree.task.id) for tree in held]
    assert index["title"] == run.name
    for shown, tree in zip(trees, held, strict=True):
        assert prompts_of(shown) == [visible(step.prompt) for step in tree.steps]
        for cells, step in zip(shown["steps"], tree.steps, strict=True):
            texts = [shown["texts"][cells[name]] for name in ("response", "next_observation", "action")]
            assert texts == list(map(visible, (step.response, step.next_observation, named_action(step))))
            assert len(cells.get("moves", [])) == len(step.moves)
            for name in ("pictures", "next_pictures"):
                pngs = [read_picture(run / "pictures", one) for one in getattr(step, name) or ()]
                assert [picture(page, index, number) for number in cells.get(name, [])] == pngs


def picture(page: Path, index: dict[str, Any], number: int) -> bytes:
    """A picture of the page, found as its script finds it."""
    first, block = next(entry for entry in reversed(index["album"]) if entry[0] <= number)
    return base64.b64decode(unpacked(page)[f"block-{block}"][number - first])


@pytest.mark.parametrize(
    "world", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in world_names()]
)
def test_a_page_of_every_world(world: str, tmp_path: Path) -> None:
    check_page(rolled(tmp_path / "run", world), tmp_path / "page.html")


@pytest.mark.parametrize("method", sorted(set(method_names()) - {"rare-tool"}))
def test_a_page_of_every_method(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = toy(method, tasks=2, options={"pictures": True})
    settings.prompt.style = "full"
    monkeypatch.setitem(POLICIES, "seeded", "scripted:seeded")
    settings.policy.kind = "seeded"
    roll(settings, tmp_path / "run")
    check_page(tmp_path / "run", tmp_path / "page.html")


def test_no_world_and_no_method_is_named_by_the_scripts() -> None:
    code = script()
    for name in {*world_names(), *method_names()} - {"chain"}:
        assert name not in code


def test_each_picture_stands_once_in_a_page(tmp_path: Path) -> None:
    run = rolled(tmp_path / "run", "sokoban")
    index, trees = viewed(tmp_path / "page.html", str(run))
    blocks = [unpacked(tmp_path / "page.html")[f"block-{name}"] for _, name in index["album"]]
    shown = [base64.b64decode(png) for block in blocks for png in block]
    assert sorted(shown) == sorted(file.read_bytes() for file in (run / "pictures").iterdir())
    uses = [number for tree in trees for cells in tree["steps"] for number in cells["pictures"]]
    assert len(uses) > len(set(uses))


def test_a_picture_that_was_altered_is_no_part_of_a_page(tmp_path: Path) -> None:
    run = rolled(tmp_path / "run", "ezpoints")
    file = next((run / "pictures").iterdir())
    file.write_bytes(file.read_bytes()[:-1])
    refused(agentcli("view", str(run), "-o", str(tmp_path / "page.html"), "-q"), code=3, names=str(file))
    assert not (tmp_path / "page.html").exists()


def test_a_dry_run_reads_all_and_writes_nothing(tmp_path: Path) -> None:
    run = rolled(tmp_path / "run", "ezpoints")
    page = tmp_path / "page.html"
    answer = succeeded("view", str(run), "-o", str(page), "--dry-run")
    preview = yaml.safe_load(answer.stdout)
    assert preview["counts"] == {"runs": 1, "trees": 2}
    assert preview["outputs"] == [str(page)]
    assert preview["inputs"] == {"run": str(run / "trees.jsonl")}
    assert not page.exists()


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_an_evaluation_that_lacks_episodes_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    settings = msgspec.structs.replace(toy(tasks=2), evaluation=evaluation_class("chain")(split="test"))
    evaluate(settings, tmp_path / "run")
    file = tmp_path / "run/evaluation/test.jsonl"
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    answer = agentcli("view", str(tmp_path / "run"), "-o", str(tmp_path / "page.html"), "-q", *words)
    refused(answer, code=3, names=str(file), remedy="--resume")
    assert not (tmp_path / "page.html").exists()


def test_credit_of_an_evaluation_is_computed_when_it_is_named(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(
        toy(tasks=2), evaluation=evaluation_class("chain")(split="test", trees="all", samples=4)
    )
    evaluate(settings, tmp_path / "run")
    for words, methods in (((), []), (("--credit", "grpo"), ["grpo"])):
        index, trees = viewed(tmp_path / "page.html", str(tmp_path / "run"), *words)
        assert index["sources"][0]["methods"] == methods
        assert [[column["method"] for column in tree["credit"]] for tree in trees] == [methods] * 2
    tree = next(read_records(tmp_path / "run/evaluation/trees/test.jsonl", Tree))
    (credited,) = assign([tree], "grpo")
    assert trees[0]["credit"][0]["advantages"] == [row.advantage for row in credited.credit.steps]
