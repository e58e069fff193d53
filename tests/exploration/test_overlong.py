"""A prompt that grew too long: an errored leaf, or a failed task (rollout.overlong, DPEPO A.4)."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from agentcli.credit.registry import make as make_credit
from agentcli.errors import PromptTooLongError
from agentcli.evaluation.episodes import episodes
from agentcli.evaluation.growth import TreeShape, totals
from agentcli.policies.protocol import Policy, Reply, Request
from agentcli.prompts.parallel import write_parallel
from agentcli.records.settings import Settings
from agentcli.records.trees import paths
from agentcli.records.types import Outcome, StopReason, Tree, Validity
from agentcli.stages.rollout import is_complete
from agentcli.stages.tally import Tally
from agentcli.training.steps import read_pairs
from credit_trees import OF_OUTCOMES
from growths import GROWTHS, VOTES, check_ledger, check_tree, growths
from hypothesis import given, settings
from hypothesis import strategies as st
from random_world import ACTIONS, RandomEngines
from scripted import Answering, ListedPolicy, SeededPolicy, scripted
from word_trees import grow_word, words

MASK = "the prompt is too long"


class Limited(Answering):
    """Passes on what has at most `most` words, and refuses the rest."""

    def __init__(self, inner: Policy, most: int) -> None:
        self._inner, self._most = inner, most

    async def respond(self, request: Request) -> Reply:
        if len(request.prompt.split()) > self._most:
            raise PromptTooLongError(f"more than {self._most} words")
        return await self._inner.respond(request)


def two_trajectories(overlong: str) -> Tree:
    """The prompts of a a a ... have 1, 2, 4 and 7 words, of which five are too many; the other trajectory wins at once."""
    policy = Limited(scripted({(): [("a", 0.5), ("win", 0.5)]}), 5)
    return grow_word("chain", policy, leaves=2, max_steps=9, overlong=overlong)


def test_it_fails_the_task_and_costs_nothing() -> None:
    tree = two_trajectories("failure")
    assert words(tree) == [["a", "a", "a", None], ["win"]]
    before, last = tree.steps[2], tree.steps[3]
    assert (last.outcome, last.stop, last.mask, last.error) == (Outcome.FAILURE, StopReason.OVERLONG, MASK, None)
    assert (last.validity, last.response, last.token_ids, last.tag) == (Validity.VALID, "", [], None)
    assert (last.state, last.next_state, last.next_observation) == (before.next_state, before.next_state, "")
    assert last.prompt == "start a a a a a a"
    ledger = tree.ledger
    assert (ledger.leaves, ledger.steps, ledger.generated_tokens, ledger.prompt_tokens) == (2, 4, 12, 28)
    assert (ledger.siblings, ledger.distinct_siblings) == (2, 2)


def test_without_it_the_leaf_errored() -> None:
    tree = two_trajectories("error")
    last = tree.steps[3]
    assert (last.outcome, last.error, last.stop, last.mask) == (
        Outcome.ERRORED,
        "more than 5 words",
        StopReason.NONE,
        None,
    )
    assert not is_complete(tree)


def test_it_is_not_owed_again() -> None:
    assert is_complete(two_trajectories("failure"))


def test_it_is_counted_as_a_failure_and_by_itself() -> None:
    tally = Tally()
    tree = two_trajectories("failure")
    tally.add(tree)
    counts = tally.counts
    assert (counts["success"], counts["failure"], counts["errored"], counts["overlong"]) == (1, 1, 0, 1)
    assert (counts["responses"], counts["malformed_responses"]) == (4, 0)
    (line,) = tally.warnings(Settings())
    assert line.startswith("warning: 1 of 2 ")
    assert "policy.max_prompt_tokens=2048" in line
    lost, won = episodes(tree)
    assert (lost.outcome, lost.steps, lost.moves, lost.malformed_steps, lost.error) == (Outcome.FAILURE, 3, 3, 0, None)
    assert (won.outcome, won.steps) == (Outcome.SUCCESS, 1)
    shape = msgspec.json.decode(msgspec.json.encode(tree), type=TreeShape)
    found = totals([shape])
    assert (found.success.rate, found.malformed, found.cut) == (0.5, 0.0, 0.0)


def test_several_copies() -> None:
    """As many words as the two copies have seen: 2 at first ("start" twice, and the names of the copies)."""
    policy = Limited(ListedPolicy([write_parallel("go", {1: "a", 2: "a"}), write_parallel("go", {1: "b"})]), 7)
    tree = grow_word("dpepo", policy, leaves=1, copies=2, max_steps=9, overlong="failure")
    last = tree.steps[-1]
    assert (last.outcome, last.stop, last.mask, last.error) == (Outcome.FAILURE, StopReason.OVERLONG, MASK, None)
    assert (last.validity, last.moves, last.next_observation) == (Validity.VALID, [], "")
    assert last.state == last.next_state == tree.steps[-2].next_state
    assert tree.ledger.steps == sum(len(step.moves) for step in tree.steps) > 0


@pytest.mark.parametrize("method", sorted({*OF_OUTCOMES} - {"ppo", "grpo-prm"}))
def test_training_leaves_the_step_out_and_counts_the_failure(method: str) -> None:
    """The group is one success and one failure; the step that was never asked has no advantage."""
    tree = two_trajectories("failure")
    name, assign, switches = make_credit({"method": method})
    rows = {row.step: row for row in assign(tree, switches).steps}
    assert (rows[3].advantage, rows[3].masked) == (None, MASK)
    assert rows[4].advantage is not None
    if name not in ("rlvmr", "dpepo"):
        assert rows[4].advantage > 0, "the failure is what it is compared with"


@pytest.mark.parametrize("switches", [{}, {"form": "release", "over": "steps"}, {"over": "steps"}], ids=str)
def test_the_group_is_as_without_the_step(switches: dict[str, Any]) -> None:
    """It ends its trajectory and is no step of the policy's: T is 3, and an invalid step among them weighs a third."""
    tree = two_trajectories("failure")
    tree.steps[1].validity = Validity.INADMISSIBLE
    shorter = msgspec.structs.replace(tree, steps=[])
    for step in (*tree.steps[:3], tree.steps[4]):
        parent = step.parent
        shorter.steps.append(msgspec.structs.replace(step, id=len(shorter.steps), parent=parent))
    shorter.steps[2].outcome = Outcome.FAILURE
    _, assign, own = make_credit({"method": "grpo", **switches})
    whole = {row.step: row.advantage for row in assign(tree, own).steps}
    cut = {row.step: row.advantage for row in assign(shorter, own).steps}
    assert [whole[0], whole[1], whole[2], whole[4]] == pytest.approx([cut[0], cut[1], cut[2], cut[3]])


def test_pairs_leave_the_step_out(tmp_path: Path) -> None:
    path, tree = tmp_path / "trees.jsonl", two_trajectories("failure")
    tree.steps[4].token_ids = [2, 2, 2]
    path.write_bytes(msgspec.json.encode(tree) + b"\n")
    (pair,) = read_pairs(path, 8, 0)
    assert ([step.id for step in pair.chosen], [step.id for step in pair.rejected]) == ([4], [0, 1, 2])


@growths
@settings(max_examples=15, deadline=None)
@given(world=st.integers(0, 2**32), seed=st.integers(0, 2**32), most=st.integers(3, 30))
def test_either_way_the_same_tree_is_grown(growth: str, world: int, seed: int, most: int) -> None:
    """But for who forks where: an errored trajectory and a failed one are ends alike."""
    chosen: dict[str, Any] = {**GROWTHS[growth], "leaves": 4, "roots": 2}
    grown = {}
    for overlong in ("error", "failure"):
        policy, engines = Limited(SeededPolicy(ACTIONS), most), RandomEngines(world)
        grown[overlong] = grow_word(policy=policy, seed=seed, max_steps=4, engines=engines, overlong=overlong, **chosen)
    failed = grown["failure"]
    check_tree(failed, 4)
    assert not any("words" in (step.error or "") for step in failed.steps)
    for trajectory in paths(failed):
        assert all(step.stop is not StopReason.OVERLONG for step in trajectory[:-1])
    if growth in VOTES:
        return
    check_ledger(failed)
    assert failed.ledger == grown["error"].ledger
    assert [step.state for step in failed.steps] == [step.state for step in grown["error"].steps]
