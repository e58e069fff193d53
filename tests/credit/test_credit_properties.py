"""Invariants of every credit method over random trees (forks, errors, truncation, invalid steps, noise) and over deep ones."""

import math
from typing import Any

import msgspec
import pytest
from credit_trees import ERRORED, FAILURE, SUCCESS, TRUNCATED, advantages, chains, random_trees, step, tree
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.credit.graph import build
from agentcli.credit.registry import METHODS, make
from agentcli.records.trees import leaves, paths, validate_tree
from agentcli.records.types import Credit, Outcome, Tree, Validity

FORMS = st.sampled_from(["paper", "release"])
EVERY = st.fixed_dictionaries(
    {
        "method": st.sampled_from(sorted(METHODS)),
        "form": FORMS,
        "normalise": st.sampled_from(["std", "mean"]),
        "over": st.sampled_from(["trajectories", "steps"]),
        "prefix": st.sampled_from(["merge", "duplicate"]),
    }
)
PAPER = EVERY.map(lambda switches: {**switches, "form": "paper"})


def credit_of(grown: Tree, switches: dict[str, Any]) -> Credit:
    _, assign, own = make(switches)
    return assign(grown, own)


def live_below(grown: Tree) -> dict[int, int]:
    """Leaves that did not error below every step, counted path by path."""
    found = dict.fromkeys(range(len(grown.steps)), 0)
    for path in paths(grown):
        for each in path:
            found[each.id] += path[-1].outcome is not ERRORED
    return found


def reordered(grown: Tree, order: list[int]) -> tuple[Tree, dict[int, int]]:
    """The same tree with its steps created in another order that keeps parents first; old id -> new id."""
    rank = {number: position for position, number in enumerate(order)}
    ready = [each.id for each in grown.steps if each.parent is None]
    new: dict[int, int] = {}
    steps = []
    while ready:
        number = min(ready, key=rank.__getitem__)
        ready.remove(number)
        ready += [each.id for each in grown.steps if each.parent == number]
        parent = grown.steps[number].parent
        new[number] = len(steps)
        steps.append(
            msgspec.structs.replace(grown.steps[number], id=len(steps), parent=None if parent is None else new[parent])
        )
    return tree(*steps), new


@settings(max_examples=150, deadline=None)
@given(random_trees(), EVERY)
def test_rows_cover_the_tree_and_masks_are_the_errored_steps(grown: Tree, switches: dict[str, Any]) -> None:
    validate_tree(grown)
    credit = credit_of(grown, switches)
    live = live_below(grown)
    expected = [number for number in live for _ in range(max(live[number], 1))]
    if switches["prefix"] == "merge":
        expected = sorted(live)
    assert sorted(row.step for row in credit.steps) == expected
    for row in credit.steps:
        assert (row.advantage is None) == (live[row.step] == 0) == (row.masked == "errored")
        assert row.advantage is None or math.isfinite(row.advantage)
    assert credit == credit_of(grown, switches)


@settings(max_examples=100, deadline=None)
@given(random_trees(), PAPER, st.data())
def test_order_of_creation_and_names_change_nothing(grown: Tree, switches: dict[str, Any], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(grown.steps))))
    other, new = reordered(grown, order)
    for each in other.steps:
        each.state, each.next_state = f"<{each.state}>", f"<{each.next_state}>"
    found = sorted((row.step, row.advantage or 0.0) for row in credit_of(other, switches).steps)
    wanted = sorted((new[row.step], row.advantage or 0.0) for row in credit_of(grown, switches).steps)
    assert found == wanted


@settings(max_examples=80, deadline=None)
@given(random_trees(ends=st.just(SUCCESS), invalid=False) | random_trees(ends=st.just(FAILURE), invalid=False), PAPER)
def test_equal_outcomes_give_zero_trajectory_terms(grown: Tree, switches: dict[str, Any]) -> None:
    for row in credit_of(grown, switches).steps:
        assert row.parts.get("trajectory", row.advantage if switches["method"] != "rewardflow" else None) == 0.0


@settings(max_examples=80, deadline=None)
@given(random_trees(), st.sampled_from(["std", "mean"]))
def test_every_trajectory_counts_once_and_the_group_is_baselined(grown: Tree, normalise: str) -> None:
    """Sum over leaves of the mean advantage of their steps is 0, penalties included; merged rows are the mean of duplicated."""
    switches = {"method": "grpo", "normalise": normalise}
    doubled = credit_of(grown, {**switches, "prefix": "duplicate"})
    by_step: dict[int, list[float]] = {}
    for row in doubled.steps:
        if row.advantage is not None:
            by_step.setdefault(row.step, []).append(row.advantage)
    rows = iter([row.advantage for row in doubled.steps if row.advantage is not None])
    means = []
    for path in paths(grown):
        if path[-1].outcome is not ERRORED:
            means.append(sum(next(rows) for _ in path) / len(path))
    assert sum(means) == pytest.approx(0.0, abs=1e-9 * max(1, len(means)))
    for row in credit_of(grown, switches).steps:
        if row.advantage is not None:
            assert row.advantage == pytest.approx(sum(by_step[row.step]) / len(by_step[row.step]), abs=1e-9)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(Outcome)), min_size=1, max_size=8))
def test_spark_is_grpo_where_only_the_root_branches(ends: list[tuple[int, Outcome]]) -> None:
    grown = chains([[{"outcome": end if t == n - 1 else None} for t in range(n)] for n, end in ends])
    ours = credit_of(grown, {"method": "spark"})
    assert advantages(ours) == advantages(credit_of(grown, {"method": "grpo", "success_reward": 10.0}))


@settings(max_examples=80, deadline=None)
@given(random_trees(), st.sampled_from([0.5, 0.9, 1.0]), st.sampled_from(["min", "mean"]))
def test_values_are_potentials_of_the_graph(grown: Tree, gamma: float, distance: str) -> None:
    graph = build(grown, gamma=gamma, distance=distance)
    for node in graph.nodes:
        assert 0.0 <= node.value <= 1.0
        assert node.value == (0.0 if node.hops is None else gamma**node.hops)
        assert (node.hops == 0) == (node.kind == "success") or distance == "mean"
    if distance == "min":
        for number, node in enumerate(graph.nodes):
            ahead = [graph.nodes[e.target].hops for e in graph.edges if e.source == number]
            reachable = [hops for hops in ahead if hops is not None]
            if node.kind != "success":
                assert node.hops == (min(reachable) + 1 if reachable else None)
    for each in grown.steps:
        if each.parent is not None and graph.sources[each.id] >= 0:
            assert graph.sources[each.id] == graph.targets[each.parent]
    assert sum(edge.count for edge in graph.edges) == sum(
        source >= 0 and not pruned for source, pruned in zip(graph.sources, graph.pruned, strict=True)
    )


@settings(max_examples=80, deadline=None)
@given(random_trees(), st.sampled_from(["merge", "duplicate"]))
def test_gains_telescope_and_action_terms_are_baselined_per_state(grown: Tree, prefix: str) -> None:
    credit = credit_of(grown, {"method": "rewardflow", "scale": "none", "prefix": prefix})
    graph = build(grown)
    parts = {row.step: row.parts for row in credit.steps if row.advantage is not None}
    for path in paths(grown):
        if path[-1].outcome is not ERRORED:
            total = sum(parts[each.id]["gain"] for each in path)
            assert total == pytest.approx(parts[path[-1].id]["next_value"] - parts[path[0].id]["value"], abs=1e-12)
    groups: dict[int, list[float]] = {}
    for row in credit.steps:
        if row.advantage is not None:
            assert row.advantage == row.parts["action"] + row.parts["trajectory"]
            groups.setdefault(graph.sources[row.step], []).append(row.parts["action"])
    for group in groups.values():
        assert sum(group) == pytest.approx(0.0, abs=1e-9)
        assert len(group) > 1 or group == [0.0]


@settings(max_examples=60, deadline=None)
@given(random_trees(), PAPER)
def test_an_errored_trajectory_beside_the_others_changes_nothing(grown: Tree, switches: dict[str, Any]) -> None:
    more = tree(*grown.steps, step(len(grown.steps), None, state="a", next_state="q", outcome=ERRORED))
    assert credit_of(more, switches).steps[: len(credit_of(grown, switches).steps)] == credit_of(grown, switches).steps


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("form", ["paper", "release"])
def test_ten_thousand_steps_deep(method: str, form: str) -> None:
    """One chain of 10,000 steps with a fork in the middle and an invalid step at every tenth."""
    deep = 10_000
    steps = []
    for n in range(deep):
        bad = n % 10 == 3
        here, there = f"s{n}", f"s{n + 1}"
        steps.append(
            step(n, n - 1 if n else None, state=here, next_state=there, validity=Validity(["valid", "malformed"][bad]))
        )
    steps[-1].outcome = TRUNCATED
    steps.append(step(deep, deep // 2, state=steps[deep // 2].next_state, next_state="goal", outcome=SUCCESS))
    grown = tree(*steps)
    validate_tree(grown)
    assert len(leaves(grown)) == 2
    credit = credit_of(grown, {"method": method, "form": form})
    assert all(row.advantage is not None and math.isfinite(row.advantage) for row in credit.steps)
    best = max(credit.steps, key=lambda row: row.advantage or 0.0)
    assert best.step == deep or form == "release"
    assert len(credit.steps) == deep + 1 + (deep // 2 + 1) * (form == "release")
