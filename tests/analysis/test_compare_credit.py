"""credit compare as a stage: where a method's advantages are taken from, and what the rows say; nothing is written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agentcli.analysis.compare_credit import compare_credit
from agentcli.records.files import read_records
from agentcli.records.types import Tree
from agentcli.reports.standing import Progress
from agentcli.stages.session import Invocation
from grown_runs import toy
from older_runs import without_checksums
from refusal import refused
from staged import assign_credit


def assign(run: Path, **switches: Any) -> None:
    settings = toy()
    settings.credit = switches
    assign_credit(settings, run, Invocation(["agentcli"], overwrite=True))


def compare(run: Path, *names: str, most: int = 10) -> dict[str, Any]:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    found = compare_credit(run, names, Progress(), most)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    plain: dict[str, Any] = msgspec.to_builtins(found)
    return plain


class Heard(Progress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def sources(found: dict[str, Any]) -> list[Any]:
    return [(row["method"], row["file"], row["settings"]) for row in found["methods"]]


def test_a_file_is_read_where_it_is_of_these_trees_and_else_the_method_is_computed(run: Path) -> None:
    assert sources(compare(run, "grpo", "spark")) == [("grpo", None, {}), ("spark", None, {})]
    assign(run, method="rewardflow", gamma=0.5, alpha_traj=0.0)
    assign(run, method="grpo")
    files = [str(run / f"credit/{name}.jsonl") for name in ("grpo", "rewardflow")]
    named = compare(run, "rewardflow", "grpo", "carl")
    assert sources(named) == [
        ("rewardflow", files[1], {"gamma": 0.5, "alpha_traj": 0.0}),
        ("grpo", files[0], {}),
        ("carl", None, {}),
    ]
    unnamed = compare(run)
    assert [row["file"] for row in unnamed["methods"]] == files
    (run / "manifest.json").unlink()
    defaults = compare(run, "rewardflow", "grpo", "carl")
    assert [row["file"] for row in defaults["methods"]] == [None] * 3
    assert defaults["methods"][0]["mean"] != named["methods"][0]["mean"]
    assert defaults["methods"][1]["spread"] == named["methods"][1]["spread"]


def test_credit_of_other_trees_is_not_read(run: Path) -> None:
    assign(run, method="grpo")
    lines = (run / "trees.jsonl").read_bytes().splitlines(keepends=True)
    (run / "trees.jsonl").write_bytes(b"".join(reversed(lines)))
    assert sources(compare(run, "grpo", "carl")) == [("grpo", None, {}), ("carl", None, {})]
    heard = Heard()
    compare_credit(run, ["carl", "grpo"], heard)
    (note,) = heard.notes
    assert note.startswith(f"{run}/credit/grpo.jsonl ")
    assert "; grpo is computed now" in note
    assert note.endswith("its defaults")


def test_a_file_that_is_no_method_s(run: Path) -> None:
    assign(run, method="grpo")
    (run / "credit/[red]mine.jsonl").write_bytes(b"")
    refused(lambda: compare(run), 3, names="credit/[red]mine.jsonl")
    assert len(compare(run, "grpo", "carl")["methods"]) == 2


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda rows: rows[:-1], ("grpo.jsonl: ", "trees.jsonl:8", "assign-credit")),
        (lambda rows: [*rows[:-1], rows[-1][:40]], ("grpo.jsonl: ", "trees.jsonl:8")),
        (lambda rows: [*rows, rows[0]], ("grpo.jsonl:9: ", "trees.jsonl", "assign-credit")),
        (lambda rows: rows[::-1], ("grpo.jsonl:1: task: ", "train/7", "train/0")),
        (lambda rows: [rows[0].replace(b'"method"', b'"mthd"'), *rows[1:]], ("grpo.jsonl:1: ", "mthd")),
    ],
)
def test_damaged_credit_is_named(
    run: Path, change: Callable[[list[bytes]], list[bytes]], names: tuple[str, ...]
) -> None:
    assign(run, method="grpo")
    file = run / "credit/grpo.jsonl"
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))
    without_checksums(run)
    refused(lambda: compare(run, "carl", "grpo"), 3, names)


def test_kinds_and_listed_steps(run: Path) -> None:
    found = compare(run, "grpo", "carl", "rewardflow", most=3)
    trees = list(read_records(run / "trees.jsonl", Tree))
    assert found["steps"] == found["kept"] == sum(len(tree.steps) for tree in trees)
    assert [(row["methods"], row["kind"]) for row in found["agreement"][:4]] == [
        (["grpo", "carl"], "locked"),
        (["grpo", "carl"], "open"),
        (["grpo", "carl"], None),
        (["grpo", "rewardflow"], "locked"),
    ]
    assert len(found["disagreements"]) == 3
    for row in found["disagreements"]:
        tree = trees[row["line"] - 1]
        assert (row["task"], row["kind"]) == (tree.task.id, tree.task.kind)
        assert row["action"] == tree.steps[row["step"]].action
        assert list(row["advantages"]) == ["grpo", "carl", "rewardflow"]


@pytest.mark.parametrize(
    ("methods", "names"),
    [
        ((), "agentcli credit compare"),
        (("grpo",), "agentcli credit compare"),
        (("grpo", "carl", "grpo"), "grpo is named twice"),
        (("grpo", "crl"), ("'crl'", "carl")),
    ],
)
def test_what_cannot_be_compared(run: Path, methods: tuple[str, ...], names: str | tuple[str, ...]) -> None:
    refused(lambda: compare(run, *methods), names=names)


def test_no_trees_and_no_steps(run: Path) -> None:
    (run / "trees.jsonl").write_bytes(b"")
    refused(lambda: compare(run, "grpo", "carl"), 3, names="trees.jsonl")
