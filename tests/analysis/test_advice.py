"""Advice: what is measured on trees written by hand, and when something is said of it."""

from pathlib import Path

import msgspec
import pytest
from agentcli.analysis.advice import RunTraits, draws, from_scratch, measure, redraws, traits
from agentcli.records.files import RecordWriter
from agentcli.records.runs import RunDirectory
from agentcli.records.trees import leaves
from agentcli.records.types import Outcome, Tree
from credit_trees import ERRORED, FAILURE, SUCCESS, TRUNCATED, chains, random_trees, walk
from hypothesis import given
from msgspec.structs import replace
from sample_records import stage_record

TWO = chains([walk("abc", SUCCESS), walk("abab", TRUNCATED, invalid={2}), walk("xyz", FAILURE)])
"""Steps leave a, b; a, b, a; x, y: five of seven leave what another left too, one leaves a for the second time."""


def said(of: RunTraits) -> dict[str, str]:
    return {one.measured: one.advice for one in traits(of)}


def test_measurements_by_hand() -> None:
    found = measure([TWO, chains([walk("pq", FAILURE), walk("pr", FAILURE)])])
    assert (found.trees, found.trajectories) == (2, 5)
    assert (found.success, found.lost, found.won) == (1 / 5, 1 / 2, 0)
    assert found.steps == pytest.approx((2 + 3 + 2 + 1 + 1) / 5)
    assert found.truncated == 1 / 5
    assert found.shared == pytest.approx((5 + 2) / 9)
    assert found.returned == pytest.approx(1 / 9)
    assert found.refused == pytest.approx(1 / 9)
    assert (found.forks, found.first_forks, found.distinct) == (0, None, None)


def test_what_looks_alike_may_be_several_states() -> None:
    """a and x are seen as k; four steps leave what another left too: k twice, b twice, and only k is two states."""
    tree = chains([walk("abc", SUCCESS), walk("xbc", FAILURE)])
    assert measure([tree]).alike == 0
    for step in (0, 2):
        tree.steps[step].canonical = "k"
    found = measure([tree])
    assert (found.shared, found.alike) == (1, 1 / 2)
    assert measure([chains([walk("ab", SUCCESS), walk("xy", FAILURE)])]).alike is None


def forked(roots: int) -> Tree:
    """One root whose second step is taken three times; two of the leaves lie behind forks."""
    tree = chains([walk("abcd", SUCCESS), walk("xbe", FAILURE), walk("xbf", FAILURE)])
    tree.steps[4].parent = tree.steps[6].parent = 0
    tree.roots = roots
    return tree


@pytest.mark.parametrize(("distinct", "success"), [(0, 1 / 3), (2, 1.0)])
def test_of_siblings_that_were_drawn_again_the_first_is_a_draw(tmp_path: Path, distinct: int, success: float) -> None:
    assert [leaf.id for leaf in draws(TWO, redrawn=True)] == [1]
    run = RunDirectory(tmp_path)
    with RecordWriter(run.trees) as writer:
        writer.write(TWO)
    run.record_stage("rollout", replace(stage_record(), settings={"rollout": {"distinct": distinct}}))
    assert redraws(run) == bool(distinct)
    assert from_scratch(tmp_path).success == pytest.approx(success)
    assert measure([TWO], redrawn=bool(distinct)).success == pytest.approx(success)


def test_leaves_behind_forks_are_no_draws() -> None:
    tree = forked(1)
    # The roots of the two other walks are trajectories that were not asked for.
    assert [leaf.id for leaf in draws(tree)] == [2]
    found = measure([tree])
    assert (found.trajectories, found.success, found.forks, found.first_forks) == (1, 1.0, 2, 1.0)
    # The actions are `to c`, `to e` and `to f`.
    assert found.distinct == 1.0
    assert "no later state was forked" in said(found)["forks right after the first step"]


def test_errored_trajectories_are_left_out() -> None:
    assert measure([chains([walk("ab", ERRORED), walk("ab", SUCCESS)])]).trajectories == 1
    with pytest.raises(ValueError, match="no trajectory"):
        measure([chains([walk("ab", ERRORED)])])


def test_the_policy_is_sure_of_what_it_nearly_always_says() -> None:
    tree = chains([walk("abc", SUCCESS), walk("xyz", FAILURE)])
    assert measure([tree]).sure is None
    sampled = [[-0.05, -0.05], [-0.05, -0.06], [-3.0], [-0.001]]
    for step, logprobs in zip(tree.steps, sampled, strict=True):
        step.logprobs, step.temperature, step.logprob_temperature = logprobs, 1.0, 1.0
    # Of .905, .896, .050 and .999 two are .9 or more.
    assert measure([tree]).sure == 1 / 2
    tree.steps[0].temperature = tree.steps[0].logprob_temperature = 0.0
    assert measure([tree]).sure == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("field", "below", "above", "place"),
    [
        ("lost", 0.5, 0.6, "groups without any success"),
        ("won", 0.5, 0.6, "groups with nothing but success"),
        ("truncated", 0.5, 0.6, "trajectories that ran out of steps"),
        ("shared", 0.5, 0.6, "steps from states that others left too"),
        ("alike", 0.5, 0.6, "of these, states that look alike and are not"),
        ("sure", 0.5, 0.6, "responses given with probability 0.9 or more"),
        ("refused", 0.05, 0.06, "refused moves"),
        ("first_forks", 0.89, 0.9, "forks right after the first step"),
        ("distinct", 0.75, 0.7, "distinct actions at forks"),
    ],
)
def test_each_advice_has_its_bound(field: str, below: float, above: float, place: str) -> None:
    calm = measure([forked(1)])
    assert said(msgspec.structs.replace(calm, **{field: below}))[place] == ""
    assert said(msgspec.structs.replace(calm, **{field: above}))[place] != ""


@given(random_trees())
def test_shares_lie_between_0_and_1(tree: Tree) -> None:
    try:
        found = measure([tree])
    except ValueError:
        return
    shares = (found.success, found.truncated, found.shared, found.returned, found.refused)
    assert all(0 <= share <= 1 for share in shares)
    several = sum(leaf.outcome is not Outcome.ERRORED for leaf in leaves(tree)) > 1
    assert (found.lost is not None) == (found.won is not None) == several
    assert 0 <= (found.lost or 0.0) + (found.won or 0.0) <= 1
