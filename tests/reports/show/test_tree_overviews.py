"""Trees as rows, and one tree found by line, by task, or by a part of it."""

from pathlib import Path

import msgspec
import pytest
from agentcli.records.files import RecordWriter
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Credit, StepCredit, Task, Tree
from agentcli.reports.show.run_tables import trees_table
from agentcli.reports.show.trees import ShownTree, add_credit, tree_overviews
from agentcli.reports.show.trees import find_tree as find_in
from credit_trees import ERRORED, SUCCESS, TRUNCATED, chains, outcomes, step, tree, walk
from refusal import refused
from table_text import text_of


def named(tree: Tree, name: str, kind: str = "k") -> Tree:
    return msgspec.structs.replace(tree, task=Task(id=name, world="w", split="train", kind=kind))


TREES = [
    named(outcomes([2, 1], [SUCCESS, SUCCESS]), "put/apple"),
    named(outcomes([2, 3], [TRUNCATED, ERRORED]), "put/pear", kind="other"),
    named(outcomes([1, 1], [SUCCESS, TRUNCATED]), "take/apple"),
]


def find_tree(run: Path, wanted: str, credit: str | None = None) -> ShownTree:
    """A tree of a run with its credit, as the command shows it."""
    shown = find_in(run / "trees.jsonl", wanted)
    add_credit(shown, run, credit)
    return shown


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RecordWriter(tmp_path / "trees.jsonl") as writer:
        for tree in TREES:
            writer.write(tree)
    return tmp_path


def give_credit(run: Path, method: str, *rows: StepCredit, task: str = "take/apple") -> None:
    with RecordWriter(run / f"credit/{method}.jsonl") as writer:
        for tree in TREES[:2]:
            writer.write(Credit(task=tree.task.id, method=method, steps=[]))
        writer.write(Credit(task=task, method=method, steps=list(rows)))


def test_failures_come_first(run: Path) -> None:
    rows = tree_overviews(run / "trees.jsonl")
    assert [row.line for row in rows] == [2, 3, 1]
    assert [(row.success, row.trajectories, row.errored) for row in rows] == [(0, 2, 1), (1, 2, 0), (2, 2, 0)]


def test_a_score_is_the_mean_over_trajectories_of_the_sum_of_rewards(tmp_path: Path) -> None:
    """Trajectories share their first step; among failures the lowest score comes first."""
    for name, late in (("higher", 0.5), ("lower", 0.25)):
        steps = (
            step(0, None, reward=0.125),
            step(1, 0, reward=late, outcome=TRUNCATED),
            step(2, 0, reward=0.0, outcome=TRUNCATED),
        )
        with RecordWriter(tmp_path / "trees.jsonl", append=True) as writer:
            writer.write(named(tree(*steps), name))
    rows = tree_overviews(tmp_path / "trees.jsonl")
    assert [(row.task, row.score) for row in rows] == [("lower", 0.25), ("higher", 0.375)]
    header, first, _ = text_of(trees_table(rows))
    assert first[header.index("score")] == "0.250"
    plain = [msgspec.structs.replace(row, success=1, trajectories=1, score=1.0) for row in rows]
    assert "score" not in text_of(trees_table(plain))[0]


def test_a_list_says_how_trees_ended_and_no_cost_that_all_share(tmp_path: Path) -> None:
    looping = named(chains([walk("ababababab", TRUNCATED)]), "loops")
    refused_moves = named(chains([walk("abcdefghij", TRUNCATED, invalid={5, 6, 7})]), "refused")
    several = named(chains([walk("abc", SUCCESS), walk("ababababab", TRUNCATED), walk("abc", SUCCESS)]), "several")
    with RecordWriter(tmp_path / "trees.jsonl") as writer:
        for one in (looping, refused_moves, several):
            writer.write(one)
    rows = {row.task: row for row in tree_overviews(tmp_path / "trees.jsonl")}
    assert rows["several"].endings == {"success": 2, "repeated": 1}
    header, *cells = text_of(trees_table(list(rows.values())))
    assert {row[header.index("ended")] for row in cells} == {"repeated", "inadmissible", "2 success, 1 repeated"}
    assert "succeed" in header
    header, *cells = text_of(trees_table([rows["loops"], rows["refused"]]))
    assert not {"succeed", "steps", "forks", "tokens"} & set(header)
    longer = msgspec.structs.replace(rows["loops"], steps=3)
    assert "steps" in text_of(trees_table([longer, rows["refused"]]))[0]
    assert "steps" in text_of(trees_table([rows["loops"]]))[0]


def test_failed_leaves_out_what_always_succeeds(run: Path) -> None:
    assert [row.line for row in tree_overviews(run / "trees.jsonl", failed=True)] == [2, 3]


def test_a_kind_may_be_chosen(run: Path) -> None:
    assert [row.task for row in tree_overviews(run / "trees.jsonl", kind="other")] == ["put/pear"]
    refused(
        lambda: tree_overviews(run / "trees.jsonl", kind="none"), names=["none", "trees.jsonl"], remedy=["k", "other"]
    )


@pytest.mark.parametrize(("wanted", "line"), [("1", 1), ("3", 3), ("put/pear", 2), ("pear", 2), ("take", 3)])
def test_a_tree_is_found(run: Path, wanted: str, line: int) -> None:
    shown = find_tree(run, wanted)
    assert shown.line == line
    assert shown.tree == TREES[line - 1]


@pytest.mark.parametrize(
    ("wanted", "names", "remedy"),
    [
        ("4", "4", "without TREE"),
        ("plum", "plum", "without TREE"),
        ("apple", "2 tasks", "1, 3"),
        ("0", "0", "without TREE"),
    ],
)
def test_a_tree_that_is_not_there_is_refused(run: Path, wanted: str, names: str, remedy: str) -> None:
    refused(lambda: find_tree(run, wanted), names=[names, "trees.jsonl"], remedy=remedy)


def test_a_torn_last_tree_is_not_there(run: Path) -> None:
    file = run / "trees.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    refused(lambda: find_tree(run, "3"), names="line 3", remedy="without TREE")
    assert len(tree_overviews(run / "trees.jsonl")) == 2


def test_the_only_credit_is_shown_without_being_named(run: Path) -> None:
    give_credit(run, "grpo", StepCredit(step=0, advantage=0.5), StepCredit(step=1, advantage=None, masked="x"))
    shown = find_tree(run, "3")
    assert shown.credit == "grpo"
    assert shown.advantage(0) == 0.5
    assert shown.advantage(1) is None


def test_several_rows_of_a_step_are_shown_by_their_mean(run: Path) -> None:
    give_credit(run, "grpo", StepCredit(step=0, advantage=1.0), StepCredit(step=0, advantage=-2.0))
    assert find_tree(run, "3").advantage(0) == -0.5


def test_of_several_credits_none_is_shown_unless_named(run: Path) -> None:
    give_credit(run, "grpo", StepCredit(step=0, advantage=1.0))
    give_credit(run, "gigpo", StepCredit(step=0, advantage=2.0))
    assert [file.stem for file in RunDirectory(run).credit_files] == ["gigpo", "grpo"]
    assert find_tree(run, "3").credit is None
    assert find_tree(run, "3", "gigpo").advantage(0) == 2.0


def test_credit_that_does_not_belong_to_the_tree_is_refused(run: Path) -> None:
    give_credit(run, "grpo", task="another")
    refused(lambda: find_tree(run, "3"), 3, names=["grpo.jsonl", "take/apple"], remedy="assign-credit")
    give_credit(run, "grpo", StepCredit(step=7, advantage=1.0))
    refused(lambda: find_tree(run, "3"), 3, names=["grpo.jsonl", "7"], remedy="assign-credit")


def test_every_tree_of_a_task_is_shown_with_its_own_credit(run: Path) -> None:
    with RecordWriter(run / "trees.jsonl", append=True) as writer:
        writer.write(TREES[2])
    give_credit(run, "grpo", StepCredit(step=0, advantage=1.0))
    refused(lambda: find_tree(run, "4"), 3, names=["grpo.jsonl", "take/apple"], remedy="assign-credit")
    with RecordWriter(run / "credit/grpo.jsonl", append=True) as writer:
        writer.write(Credit(task="take/apple", method="grpo", steps=[StepCredit(step=0, advantage=-1.0)]))
    assert [find_tree(run, line).advantage(0) for line in ("3", "4")] == [1.0, -1.0]


def test_the_whole_id_of_a_task_is_neither_a_line_nor_a_part(tmp_path: Path) -> None:
    file = tmp_path / "trees.jsonl"
    with RecordWriter(file) as writer:
        for name in ("2", "1", "30"):
            writer.write(named(TREES[0], name))
    assert [find_in(file, name, exact=True).line for name in ("2", "1", "30")] == [1, 2, 3]
    refused(lambda: find_in(file, "3", exact=True), names=["3", "trees.jsonl"], remedy="without TREE")
