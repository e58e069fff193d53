"""Rows from trees and credit: shares worked by hand, and refusals that name file and line."""

import copy
import random
from dataclasses import replace

import msgspec
import pytest
from agentcli.credit import carl, grpo
from agentcli.errors import DataError
from agentcli.records.trees import unbroken_paths
from agentcli.records.types import Outcome, StepCredit, Tree, Validity
from agentcli.training.steps import RowCounts, TreeAndCredit, read_rows, shared_entries
from credit_trees import ERRORED, FAILURE, SUCCESS
from credit_trees import step as drawn_step
from credit_trees import tree as drawn
from refusal import refused
from tiny_rollout import credit_of, write


def read(tmp_path, trees, credits, update="assigned"):
    return read_rows(write(tmp_path / "t.jsonl", trees), write(tmp_path / "c.jsonl", credits), update)


def shares(tmp_path, tree, credit):
    return [row.share for row in read(tmp_path, [tree], [credit])[0]]


@pytest.fixture
def tree(rollout):
    """0 - (1 - 3, 2 - 4): two leaves that share step 0."""
    return copy.deepcopy(rollout.tree_list[0])


def test_a_shared_step_counts_for_each_of_its_trajectories(tree, tmp_path):
    assert shares(tmp_path, tree, credit_of(tree, [1.0] * 5)) == pytest.approx([2 / 3, 1 / 3, 1 / 3, 1 / 3, 1 / 3])


@pytest.mark.parametrize(
    ("changed", "name"), [({"advantage": float("nan")}, "advantage"), ({"weight": -1.0}, "weight")]
)
def test_numbers_that_no_file_can_hold_are_refused_where_a_method_gives_them(tree, changed, name):
    credit = credit_of(tree, [1.0] * 5)
    credit.steps[3] = msgspec.structs.replace(credit.steps[3], **changed)
    given = TreeAndCredit(tree, credit, 1, "tree", "credit")
    refused(lambda: list(shared_entries(given, "assigned", RowCounts())), 3, f"credit: steps[3].{name}")


def test_steps_that_are_not_trained_shorten_their_trajectories(tree, tmp_path):
    rows, counts = read(tmp_path, [tree], [credit_of(tree, [1.0, None, 0.0, 1.0, 1.0])])
    assert [row.share for row in rows] == pytest.approx([1 / 2 + 1 / 3, 1 / 3, 1 / 2, 1 / 3])
    assert (counts.rows, counts.rows_unassigned, counts.trajectories) == (4, 1, 2)


def test_trees_without_spread_are_left_out_of_every_mean(tree, tmp_path):
    """A row whose advantage is 0 stays, where another of its tree has one."""
    other = copy.deepcopy(tree)
    other.task = msgspec.structs.replace(tree.task, id="other")
    credits = [credit_of(tree, [0.0] * 5), credit_of(other, [0.0, 1.0, None, 0.0, 0.0])]
    rows, counts = read(tmp_path, [tree, other], credits, update="spread")
    assert [(row.tree, row.advantage) for row in rows] == [(2, 0.0), (2, 1.0), (2, 0.0), (2, 0.0)]
    assert (counts.rows, counts.rows_without_spread, counts.rows_unassigned) == (4, 5, 1)
    assert len(read(tmp_path, [tree, other], credits)[0]) == 9


def test_errored_trajectories_give_no_share(tree, tmp_path):
    tree.steps[4].outcome, tree.steps[4].error = Outcome.ERRORED, "engine died"
    rows, counts = read(tmp_path, [tree], [credit_of(tree, [1.0] * 5)])
    assert [row.share for row in rows] == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3, 0])
    assert counts.trajectories == 1


def test_duplicates_of_a_step_split_its_share(tree, tmp_path):
    credit = credit_of(tree, [1.0] * 5)
    credit.steps.insert(1, StepCredit(step=0, advantage=-1.0))
    assert shares(tmp_path, tree, credit) == pytest.approx([1 / 3] * 6)


def test_duplicates_take_the_length_of_their_own_trajectory(tree, tmp_path):
    """RewardFlow eq. 11 to the letter where leaves differ in length: grpo's weighted advantages sum to 0."""
    # Leaves 2 (two steps) and 3 (three), which share step 0.
    del tree.steps[4]
    tree.steps[2].outcome, tree.steps[3].outcome = Outcome.SUCCESS, Outcome.FAILURE
    credit = grpo.assign(tree, grpo.GrpoSettings(prefix="duplicate"))
    assert [entry.step for entry in credit.steps] == [0, 2, 0, 1, 3]
    rows, _ = read(tmp_path, [tree], [credit])
    assert [row.share for row in rows] == pytest.approx([1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3])
    assert sum(row.share * row.advantage for row in rows) == pytest.approx(0, abs=1e-12)


def test_critical_rows_have_a_sibling_whatever_gave_the_credit(tree, tmp_path):
    """Only steps 1 and 2 leave one state; without the errored 4 the step before it has no sibling left either."""
    rows, counts = read(tmp_path, [tree], [credit_of(tree, [1.0] * 5)], "critical")
    assert [row.place.rpartition(": ")[2] for row in rows] == ["steps[1]", "steps[2]"]
    assert [row.share for row in rows] == [1.0, 1.0]
    assert (counts.rows, counts.rows_not_critical, counts.rows_unassigned) == (2, 3, 0)
    tree.steps[4].outcome, tree.steps[4].error = Outcome.ERRORED, "engine died"
    rows, counts = read(tmp_path, [tree], [credit_of(tree, [1.0] * 5)], "critical")
    assert (rows, counts.rows_not_critical) == ([], 5)


def test_critical_rows_of_carl_are_those_it_assigns_and_all_rows_those_of_its_own_switch(rollout, tmp_path):
    trees = copy.deepcopy(rollout.tree_list)
    trees[0].steps[4].validity = Validity.MALFORMED  # an only child: its penalty is not inherited
    given = {
        kind: [carl.assign(tree, carl.CarlSettings(update=kind)) for tree in trees] for kind in ("critical", "all")
    }
    plain, counts = read(tmp_path, trees, given["critical"])
    assert counts.rows_unassigned > 0
    assert read(tmp_path, trees, given["critical"], "critical")[0] == plain
    assert read(tmp_path, trees, given["all"], "critical")[0] == plain
    everything, counts = read(tmp_path, trees, given["critical"], "all")
    # An inherited row keeps its parts, and one that carl assigns has its own.
    of_all = [replace(row, parts={}) for row in read(tmp_path, trees, given["all"])[0]]
    assert [replace(row, parts={}) for row in everything] == of_all
    assert len(everything) == len(plain) + counts.rows_inherited
    assert counts.rows_unassigned == 0


def phased_tree(seed: int) -> Tree:
    """Two to nine steps at random, of which one or two trajectories started from scratch."""
    draw = random.Random(seed)
    parents = [None] + [draw.choice([None, *range(n)]) for n in range(1, draw.randint(2, 9))]
    ends = {n: draw.choice([SUCCESS, FAILURE, ERRORED]) for n in range(len(parents)) if n not in parents}
    steps = [drawn_step(n, parent, outcome=ends.get(n)) for n, parent in enumerate(parents)]
    for one in steps:
        one.token_ids = [1]
    return msgspec.structs.replace(drawn(*steps), roots=draw.randint(1, parents.count(None)))


def forked_by_hand(tree: Tree) -> set[int]:
    """Live steps with a live sibling; of the first trajectories, those beside a live step that is of none of them."""
    live: set[int] = set()
    for steps in unbroken_paths(tree):
        live |= {one.id for one in steps}
    first: set[int] = set()
    for start in [one.id for one in tree.steps if one.parent is None][: tree.roots]:
        walked: int | None = start
        while walked is not None:
            first.add(walked)
            walked = min((one.id for one in tree.steps if one.parent == walked), default=None)
    chosen = set()
    for one in tree.steps:
        beside = {other.id for other in tree.steps if other.parent == one.parent and other.id in live} - {one.id}
        if one.id in live and beside and (one.id not in first or beside - first):
            chosen.add(one.id)
    return chosen


def test_forked_rows_are_those_that_carl_assigns_with_its_switch_of_that_name():
    for seed in range(300):
        tree = phased_tree(seed)
        chosen = forked_by_hand(tree)
        of_carl = carl.assign(tree, carl.CarlSettings(first_phase="forked"))
        assert {row.step for row in of_carl.steps if row.advantage is not None} == chosen, seed
        credit = grpo.assign(tree, grpo.GrpoSettings(prefix="duplicate"))
        entries = shared_entries(TreeAndCredit(tree, credit, 1, "tree", "credit"), "forked", RowCounts())
        assert {entry.step for entry, _ in entries} == chosen, seed


def test_forked_needs_to_know_the_first_trajectories(tree):
    tree.roots = None
    given = TreeAndCredit(tree, credit_of(tree, [1.0] * 5), 1, "tree", "credit")
    refused(lambda: list(shared_entries(given, "forked", RowCounts())), 3, ("tree: roots", "--update critical"))


def test_rows_hold_what_was_sampled(rollout):
    rows, counts = read_rows(rollout.trees, rollout.credit)
    steps = [step for tree in rollout.tree_list for step in tree.steps]
    assert [row.token_ids for row in rows] == [step.token_ids for step in steps]
    assert [row.message.text for row in rows] == [step.prompt for step in steps]
    given = [entry.advantage for credit in rollout.credit_list for entry in credit.steps]
    assert [row.advantage for row in rows] == given
    assert sum(row.share for row in rows) == pytest.approx(counts.trajectories)


def test_a_step_without_tokens_is_left_out_and_counted(tree, tmp_path):
    tree.steps[4].token_ids, tree.steps[4].logprobs, tree.steps[4].outcome = [], [], Outcome.ERRORED
    rows, counts = read(tmp_path, [tree], [credit_of(tree, [1.0] * 5)])
    assert (len(rows), counts.rows_without_tokens) == (4, 1)


def refusal(tmp_path, trees, credits):
    with pytest.raises(DataError) as caught:
        read(tmp_path, trees, credits)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_refuses_files_that_do_not_belong_together(rollout, tmp_path):
    one, two = rollout.tree_list[:2]
    good = [credit_of(tree, [1.0] * len(tree.steps)) for tree in (one, two)]
    assert "c.jsonl:2: task: is task-0" in refusal(tmp_path, [one, two], [good[0], good[0]])
    assert "c.jsonl: ends after 1 records" in refusal(tmp_path, [one, two], good[:1])
    assert "t.jsonl: ends after 1 records" in refusal(tmp_path, [one], good)
    good[1].steps[5].step = 99
    assert "c.jsonl:2: steps[5].step: 99 " in refusal(tmp_path, [one, two], good)


@pytest.mark.parametrize("text", ['"advantage":1e999', '"advantage":NaN', '"weight":-1.0,"advantage":1.0'])
def test_refuses_numbers_that_are_none(rollout, tmp_path, text):
    tree = rollout.tree_list[0]
    trees = write(tmp_path / "t.jsonl", [tree])
    credit = tmp_path / "c.jsonl"
    credit.write_text(f'{{"task":"{tree.task.id}","method":"m","steps":[{{"step":0,{text}}}]}}\n')
    refused(lambda: read_rows(trees, credit), 3, names="c.jsonl:1")


def test_refuses_trees_that_no_model_sampled(tree, tmp_path):
    for step in tree.steps:
        step.token_ids, step.logprobs = [], []
    message = refusal(tmp_path, [tree], [credit_of(tree, [1.0] * 5)])
    assert all(part in message for part in ("t.jsonl:1: task task-0: ", "token_ids"))
    assert "expert" in message
