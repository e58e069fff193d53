"""--explain as a stage: which step an address means, the extremes of a file, what existing credit says; and nothing is written."""

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agentcli.analysis.explain import explain_step
from agentcli.credit.explain import ExplainedStep
from agentcli.credit.registry import make
from agentcli.records.files import RecordWriter, read_records
from agentcli.records.types import Credit, Tree
from agentcli.stages.session import Invocation
from grown_runs import toy
from refusal import refused
from staged import assign_credit


def ask(run: Path, wanted: str, **switches: Any) -> ExplainedStep:
    settings = toy()
    settings.credit = {"method": "grpo", **switches}
    return explain_step(settings, run, wanted)


def assign(run: Path, **switches: Any) -> list[Credit]:
    settings = toy()
    settings.credit = {"method": "grpo", **switches}
    assign_credit(settings, run, Invocation(["agentcli"]))
    return list(read_records(run / f"credit/{settings.credit['method']}.jsonl", Credit))


def renamed(run: Path, names: dict[int, str]) -> None:
    """Other ids for the tasks of some lines."""
    trees = list(read_records(run / "trees.jsonl", Tree))
    with RecordWriter(run / "trees.jsonl") as writer:
        for line, tree in enumerate(trees, 1):
            task = msgspec.structs.replace(tree.task, id=names.get(line, tree.task.id))
            writer.write(msgspec.structs.replace(tree, task=task))


def test_extremes_are_those_of_the_file(run: Path) -> None:
    told = {name: ask(run, name, method="rewardflow") for name in ("best", "worst")}
    assert sorted(path.name for path in run.iterdir()) == ["trees.jsonl"]
    found = [
        (entry.advantage, given.task, entry.step)
        for given in assign(run, method="rewardflow")
        for entry in given.steps
        if entry.advantage is not None
    ]
    advantages = [advantage for advantage, _, _ in found]
    for name, extreme in (("best", max(advantages)), ("worst", min(advantages))):
        about = told[name].explanation
        first = found[advantages.index(extreme)]
        assert (about.advantage, about.task, about.step) == first
        assert told[name].line == int(about.task.split("/")[1]) + 1


@pytest.mark.parametrize(
    ("names", "wanted", "line"),
    [
        ({}, "train/3:1", 4),
        ({}, "4:1", 4),
        ({2: "valid:pick/apple:17"}, "valid:pick/apple:17:0", 2),
        ({2: "5"}, "5:0", 2),
        ({2: "5"}, "6:0", 6),
        ({5: "twice", 2: "twice"}, "twice:0", 2),
        ({5: "twice", 2: "twice"}, "5:0", 5),
    ],
)
def test_addresses(run: Path, names: dict[int, str], wanted: str, line: int) -> None:
    renamed(run, names)
    told = ask(run, wanted)
    assert told.line == line
    assert told.explanation.step == int(wanted.rpartition(":")[2])
    assert told.trees == str(run / "trees.jsonl")


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("least", ("best", "worst", "TASK:STEP", "LINE:STEP")),
        ("train/3", ("best", "worst")),
        ("train/3:", ("best", "worst")),
        (":3", ("best", "worst")),
        ("train/3:-1", ("best", "worst")),
        ("train/3:²", ("best", "worst")),
        ("train/99:0", ("trees.jsonl", "train/99")),
        ("99:0", ("trees.jsonl", "99")),
        ("0:0", ("trees.jsonl", "0")),
        ("train/3:99999", ("train/3", "0 to ")),
        ("train/3:" + "9" * 5000, ("train/3", "0 to ")),
    ],
)
def test_an_address_that_means_nothing(run: Path, wanted: str, names: tuple[str, ...]) -> None:
    refused(lambda: ask(run, wanted), names=("--explain", *names))


def test_what_is_written_already_is_told_beside_it(run: Path) -> None:
    assert ask(run, "1:0").written is None
    assign(run, normalise="mean")
    same = ask(run, "1:0", normalise="mean").written
    assert same is not None
    assert (same.same, same.settings, same.file) == (True, {}, str(run / "credit/grpo.jsonl"))
    other = ask(run, "best").written
    assert other is not None
    assert other.same is False
    assert other.settings == {"normalise": ["mean", "std"]}
    lines = (run / "trees.jsonl").read_bytes().splitlines(keepends=True)
    (run / "trees.jsonl").write_bytes(b"".join(lines[1:]))
    gone = ask(run, "1:0", normalise="mean").written
    assert gone is not None
    assert (gone.same, gone.advantage, gone.settings) == (False, None, {})


def test_a_file_in_which_nothing_has_an_advantage(run: Path) -> None:
    (run / "trees.jsonl").write_bytes((run / "trees.jsonl").read_bytes().replace(b'"mask":null', b'"mask":"noise"'))
    refused(lambda: ask(run, "best"), names=("--explain", "trees.jsonl"))
    about = ask(run, "1:0").explanation
    assert (about.advantage, about.masked, about.account) == (None, "noise", [])
    assert about.why_masked
    assert all(part in about.why_masked for part in ("must not be imitated", "marked so"))


def test_no_trees(run: Path) -> None:
    (run / "trees.jsonl").write_bytes(b"")
    for wanted in ("best", "1:0"):
        refused(partial(ask, run, wanted), 3, str(run / "trees.jsonl"))


def test_settings_are_complete_and_those_changed_are_apart(run: Path) -> None:
    about = ask(run, "1:0", method="gigpo", gamma=0.5).explanation
    assert about.changed == {"gamma": 0.5}
    assert about.settings == msgspec.to_builtins(make({"method": "gigpo", "gamma": 0.5})[2])
