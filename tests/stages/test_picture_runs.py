"""Pictures beside the trees of a run: every stage that writes or copies trees keeps them, and `validate` reads them all."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from agentcli.environments.protocol import Picture
from agentcli.exploration.settings import evaluation_class
from agentcli.policies.protocol import Reply, Request
from agentcli.prompts.tagged import write_tagged
from agentcli.records.files import read_records
from agentcli.records.pictures import folder_beside, name_of, pictures_of, read_picture
from agentcli.records.settings import Settings
from agentcli.records.types import Tree
from agentcli.stages.annotate import Teacher
from command_line import agentcli, succeeded
from drawn import square
from grown_runs import roll, toy
from refusal import refused
from scripted import Answering
from staged import demos, evaluate, rollout
from test_merge import merge, part, sample
from toy_world import ToyWorld

DRAWN = {"pictures": True}


def drawn(method: str = "chain", tasks: int = 4) -> Settings:
    settings = toy(method, tasks=tasks, options=DRAWN)
    settings.prompt.style = "full"
    return settings


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def shown_in(trees: Path) -> dict[str, bytes]:
    """The files that the trees name."""
    names = [name for tree in read_records(trees, Tree) for name in pictures_of(tree)]
    return {f"{name}.png": read_picture(folder_beside(trees), name) for name in names}


@pytest.mark.parametrize("method", ["chain", "spark", "dpepo"])
def test_a_rollout_keeps_just_the_pictures_of_its_trees(tmp_path: Path, method: str) -> None:
    roll(drawn(method), tmp_path)
    assert files(tmp_path / "pictures") == shown_in(tmp_path / "trees.jsonl")
    assert f"{name_of(square(0))}.png" in files(tmp_path / "pictures")


def test_a_world_of_text_leaves_no_trace_of_them(tmp_path: Path) -> None:
    roll(toy(tasks=2), tmp_path)
    assert not (tmp_path / "pictures").exists()
    assert b"pictures" not in (tmp_path / "trees.jsonl").read_bytes()


def test_a_resumed_run_is_the_undisturbed_one(tmp_path: Path) -> None:
    roll(drawn(), tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    trees = tmp_path / "killed/trees.jsonl"
    trees.write_bytes(trees.read_bytes()[:9000])
    # The kill came while the last picture was written.
    lost = f"{name_of(square(3))}.png"
    (tmp_path / "killed/pictures" / lost).rename(tmp_path / "killed/pictures/.picture.part")
    roll(drawn(), tmp_path / "killed", resume=True)
    for file in ("trees.jsonl", f"pictures/{lost}"):
        assert (tmp_path / "killed" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_overwriting_drops_what_nothing_names_any_more(tmp_path: Path) -> None:
    roll(drawn(), tmp_path)
    settings = msgspec.structs.replace(
        drawn(), evaluation=evaluation_class("chain")(split="test", tasks=1, trees="all", samples=1)
    )
    evaluate(settings, tmp_path)
    kept = shown_in(tmp_path / "evaluation/trees/test.jsonl")
    (tmp_path / "pictures" / f"{'0' * 64}.png").write_bytes(b"")
    roll(toy(tasks=2), tmp_path, overwrite=True)
    assert files(tmp_path / "pictures") == kept


def test_demonstrations_have_pictures(tmp_path: Path) -> None:
    settings = drawn()
    settings.demos.policy = "search"
    settings.demos.count = 3
    demos(settings, tmp_path)
    assert files(tmp_path / "pictures") == shown_in(tmp_path / "trees.jsonl")


def test_merged_shards_have_the_pictures_of_all(tmp_path: Path) -> None:
    merge(sample(rollout, drawn(), tmp_path, 2), tmp_path / "merged")
    assert files(tmp_path / "merged/pictures") == files(tmp_path / "whole/pictures")


def test_merged_evaluations_have_them_too(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(
        drawn(), evaluation=evaluation_class("chain")(split="test", trees="all", samples=1)
    )
    merge(sample(evaluate, settings, tmp_path, 2), tmp_path / "merged")
    assert files(tmp_path / "merged/pictures") == shown_in(tmp_path / "whole/evaluation/trees/test.jsonl")


def test_a_shard_without_a_picture_is_not_merged(tmp_path: Path) -> None:
    rollout(part(drawn(), "1/1"), tmp_path / "1", model=None)
    lost = next((tmp_path / "1/pictures").iterdir())
    lost.unlink()
    refused(lambda: merge([tmp_path / "1"], tmp_path / "merged"), code=3, names=str(lost))
    assert not (tmp_path / "merged/trees.jsonl").exists()


class Watcher(Answering):
    """A teacher that keeps what it is shown."""

    def __init__(self) -> None:
        self.pictures: list[tuple[Picture, ...]] = []

    async def respond(self, request: Request) -> Reply:
        self.pictures.append(request.message.pictures)
        return Reply(text=write_tagged("think", "so", "go east"))


def test_a_teacher_sees_what_the_agent_saw(tmp_path: Path) -> None:
    settings = drawn(tasks=1)
    settings.policy.kind = "expert"
    roll(settings, tmp_path)
    (tree,) = read_records(tmp_path / "trees.jsonl", Tree)
    watcher = Watcher()
    teacher = Teacher(watcher, ToyWorld(settings.environment), settings, tmp_path / "pictures")
    asyncio.run(teacher.annotate(tree, "key"))
    assert set(watcher.pictures) == {(Picture(square(room)),) for room in range(3)}


@pytest.mark.parametrize("words", [("1", "--trajectory", "1"), ("--step", "1:0")])
def test_show_names_pictures_and_their_size(tmp_path: Path, words: tuple[str, ...]) -> None:
    roll(drawn(tasks=1), tmp_path)
    name = name_of(square(0))
    line = f"4 x 4: {tmp_path}/pictures/{name[:12]}*.png"
    shown = agentcli("show", str(tmp_path), *words).stdout
    assert "".join(line.split()) in "".join(shown.split())
    (tmp_path / f"pictures/{name}.png").unlink()
    without = succeeded("show", str(tmp_path), *words)
    assert name in "".join(without.stdout.split())


Damage = Callable[[Path], object]
DAMAGES: dict[str, Damage] = {
    "missing": Path.unlink,
    "truncated": lambda file: file.write_bytes(file.read_bytes()[:-9]),
    "altered": lambda file: file.write_bytes(square(200)),
    "empty": lambda file: file.write_bytes(b""),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_validate_names_a_damaged_picture(tmp_path: Path, damage: str) -> None:
    roll(drawn(tasks=1), tmp_path)
    assert agentcli("validate", str(tmp_path)).code == 0
    file = tmp_path / "pictures" / f"{name_of(square(1))}.png"
    DAMAGES[damage](file)
    answer = agentcli("validate", str(tmp_path))
    assert answer.code == 3
    (line,) = [line for line in answer.stderr.splitlines() if "fine" not in line]
    assert str(file) in line
