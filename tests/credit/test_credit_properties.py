"""Invariants of every credit method over random trees (forks, errors, truncation, invalid steps, noise) and over deep ones."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from agentcli.credit.graph import build
from agentcli.credit.registry import make
from agentcli.records.trees import leaves, paths, validate_tree
from agentcli.records.types import Credit, Outcome, Tree, Validity
from credit_trees import ERRORED, FAILURE, OF_OUTCOMES, SUCCESS, TRUNCATED, advantages, chains, random_trees, step, tree
from hypothesis import given, settings
from hypothesis import strategies as st

SWITCHES = {
    "form": ["paper", "release"],
    "normalise": ["std", "mean"],
    "over": ["trajectories", "steps"],
    "prefix": ["merge", "duplicate"],
    "update": ["critical", "all"],
    "rewards": ["outcome", "environment"],
    "invalid_penalty": [0.0, 0.1],
    "penalty": ["inside", "outside"],
    "outcome": ["success", "score"],
}
OUTCOME_ONLY = ("grpo", "rloo", "spark", "arpo", "carl", "treerl", "treerpo")
"""Methods that are nothing but differences of outcomes."""
WITH_TRAJECTORY_TERM = ("rewardflow", "gigpo", "rlvmr", "dpepo")


@st.composite
def every(draw: st.DrawFn, methods: Sequence[str] = tuple(OF_OUTCOMES), **fixed: Any) -> dict[str, Any]:
    """A method with the switches it has, at random but for `fixed`."""
    name = draw(st.sampled_from(sorted(methods)))
    typed_switches = {field.name for field in msgspec.structs.fields(type(make({"method": name})[2]))}
    drawn = {switch: draw(st.sampled_from(values)) for switch, values in SWITCHES.items() if switch in typed_switches}
    switches = {
        "method": name,
        **drawn,
        **{switch: value for switch, value in fixed.items() if switch in typed_switches},
    }
    if switches.get("form") == "release":
        switches["penalty"] = "inside"
    if switches["method"] == "ppo" and switches["rewards"] == "environment":
        switches["outcome"] = "success"
    return switches


EVERY = every()
PAPER = every(form="paper")


def credit_of(grown: Tree, switches: dict[str, Any]) -> Credit:
    _, assign, typed_switches = make(switches)
    return assign(grown, typed_switches)


def live_below(grown: Tree) -> dict[int, int]:
    """Leaves that did not error below every step, counted path by path."""
    computed = dict.fromkeys(range(len(grown.steps)), 0)
    for path in paths(grown):
        for each in path:
            computed[each.id] += path[-1].outcome is not ERRORED
    return computed


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


@settings(max_examples=100, deadline=None)
@given(random_trees(), EVERY)
def test_rows_cover_the_tree_and_masks_are_the_errored_steps(grown: Tree, switches: dict[str, Any]) -> None:
    validate_tree(grown)
    credit = credit_of(grown, switches)
    live = live_below(grown)
    expected = [number for number in live for _ in range(max(live[number], 1))]
    if switches.get("prefix", "merge") == "merge":
        expected = sorted(live)
    assert sorted(row.step for row in credit.steps) == expected
    for row in credit.steps:
        assert (live[row.step] == 0) == (row.masked == "errored")
        assert (row.advantage is None) == (row.masked is not None)
        assert row.masked in (None, "errored", *(["only child"] if switches.get("update") == "critical" else []))
        assert row.advantage is None or math.isfinite(row.advantage)
    assert credit == credit_of(grown, switches)


@settings(max_examples=100, deadline=None)
@given(random_trees(), PAPER, st.data())
def test_order_of_creation_and_names_change_nothing(grown: Tree, switches: dict[str, Any], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(grown.steps))))
    other, new = reordered(grown, order)
    for each in other.steps:
        each.state, each.next_state = f"<{each.state}>", f"<{each.next_state}>"
        each.moves = [msgspec.structs.replace(move, state=f"<{move.state}>") for move in each.moves]
    computed = sorted((row.step, row.advantage or 0.0) for row in credit_of(other, switches).steps)
    wanted = sorted((new[row.step], row.advantage or 0.0) for row in credit_of(grown, switches).steps)
    assert computed == wanted


@settings(max_examples=60, deadline=None)
@given(
    random_trees(ends=st.just(SUCCESS), invalid=False) | random_trees(ends=st.just(FAILURE), invalid=False),
    every((*OUTCOME_ONLY, *WITH_TRAJECTORY_TERM), form="paper", outcome="success"),
)
def test_equal_outcomes_give_zero_trajectory_terms(grown: Tree, switches: dict[str, Any]) -> None:
    for row in credit_of(grown, switches).steps:
        if row.advantage is not None:
            assert row.parts.get("trajectory", row.advantage if switches["method"] in OUTCOME_ONLY else None) == 0.0


@settings(max_examples=60, deadline=None)
@given(
    random_trees(ends=st.sampled_from([SUCCESS, FAILURE, ERRORED]), invalid=False),
    every((*OUTCOME_ONLY, *WITH_TRAJECTORY_TERM), form="paper", outcome="success"),
)
def test_only_differences_of_outcomes_count(grown: Tree, switches: dict[str, Any]) -> None:
    """Exchanging success and failure takes R to (constant - R): what is baselined changes its sign and nothing else."""
    swapped = {SUCCESS: FAILURE, FAILURE: SUCCESS}
    other = tree(
        *(msgspec.structs.replace(each, outcome=swapped.get(each.outcome, each.outcome)) for each in grown.steps)
    )
    pairs = zip(credit_of(grown, switches).steps, credit_of(other, switches).steps, strict=True)
    for row, mirrored in pairs:
        assert (row.advantage is None) == (mirrored.advantage is None)
        if row.advantage is not None:
            part, same = (each.parts.get("trajectory", each.advantage) for each in (row, mirrored))
            assert part == pytest.approx(-(same or 0.0), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=8),
    st.sampled_from(Outcome),
    every(OUTCOME_ONLY, form="paper", penalty="inside"),
)
def test_a_single_trajectory_teaches_nothing(states: list[str], end: Outcome, switches: dict[str, Any]) -> None:
    fields: list[dict[str, Any]] = [
        {"state": state, "validity": Validity.MALFORMED if state == "b" else Validity.VALID} for state in states
    ]
    fields[-1]["outcome"] = end
    assert set(advantages(credit_of(chains([fields]), switches))) <= {0.0, None}


@settings(max_examples=60, deadline=None)
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


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from(Outcome)), min_size=1, max_size=8),
    st.sampled_from(["std", "mean"]),
)
def test_where_only_the_root_branches_tree_methods_are_grpo(ends: list[tuple[int, Outcome]], normalise: str) -> None:
    """spark and arpo are grpo; treerpo gives grpo's advantage to first steps and 0 after them; carl gives R - mean to first
    steps, and with `update: all` to every step; rloo is that times G / (G - 1)."""
    grown = chains([[{"outcome": end if t == n - 1 else None} for t in range(n)] for n, end in ends])
    group = credit_of(grown, {"method": "grpo", "normalise": normalise})
    ten = credit_of(grown, {"method": "grpo", "normalise": normalise, "success_reward": 10.0})
    assert advantages(credit_of(grown, {"method": "spark", "normalise": normalise})) == advantages(ten)
    assert credit_of(grown, {"method": "arpo", "normalise": normalise}).steps == group.steps
    plain = advantages(credit_of(grown, {"method": "grpo", "normalise": "mean"}))
    size = sum(end is not ERRORED for _, end in ends)
    computed = {
        name: advantages(credit_of(grown, {"method": name, **switches}))
        for name, switches in {"carl": {"update": "all"}, "treerpo": {"normalise": normalise}, "rloo": {}}.items()
    }
    close(computed["carl"], plain)
    close(computed["rloo"], [None if x is None else x * size / max(size - 1, 1) for x in plain])
    first = [each.parent is None for each in grown.steps]
    wanted = [x if x is None or root else 0.0 for x, root in zip(advantages(group), first, strict=True)]
    close(computed["treerpo"], wanted)
    critical = credit_of(grown, {"method": "carl"})
    for row, root, value in zip(critical.steps, first, plain, strict=True):
        trained = root and size > 1 and value is not None
        assert row.advantage == (pytest.approx(value, abs=1e-12) if trained else None)


def close(computed: list[float | None], wanted: list[float | None]) -> None:
    assert [x is None for x in computed] == [x is None for x in wanted]
    assert [x or 0.0 for x in computed] == pytest.approx([x or 0.0 for x in wanted], abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(random_trees(), st.sampled_from(["std", "mean"]))
def test_siblings_are_baselined(grown: Tree, normalise: str) -> None:
    """Among the children of one state the advantages of carl and treerpo sum to 0, penalties included, and so do treerl's local
    terms with the weight of their leaves; carl's outcome parts telescope along a path."""
    carl = credit_of(grown, {"method": "carl", "update": "all"})
    treerpo = credit_of(grown, {"method": "treerpo", "normalise": normalise})
    treerl = credit_of(grown, {"method": "treerl"})
    live = live_below(grown)
    families: dict[int | None, list[int]] = {}
    for each in grown.steps:
        if live[each.id]:
            families.setdefault(each.parent, []).append(each.id)
    for family in families.values():
        if len(family) > 1:
            assert sum(carl.steps[n].advantage or 0.0 for n in family) == pytest.approx(0.0, abs=1e-9)
        assert sum(treerpo.steps[n].advantage or 0.0 for n in family) == pytest.approx(0.0, abs=1e-9)
        assert sum(treerl.steps[n].parts["local"] * live[n] for n in family) == pytest.approx(0.0, abs=1e-9)
    for path in paths(grown):
        if path[-1].outcome is not ERRORED:
            parts = [carl.steps[each.id].parts for each in path]
            total = sum(each["expected"] - each["baseline"] for each in parts)
            assert total == pytest.approx(parts[-1]["expected"] - parts[0]["baseline"], abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    random_trees(), every(("gigpo", "ppo", "rlvmr"), form="paper", normalise="mean", scale="none", invalid_penalty=0.1)
)
def test_a_merged_row_is_the_mean_of_its_duplicates(grown: Tree, switches: dict[str, Any]) -> None:
    name = {"gigpo": "return", "ppo": "return", "rlvmr": "tag_reward"}[switches["method"]]
    by_step: dict[int, list[float]] = {}
    for row in credit_of(grown, {**switches, "prefix": "duplicate"}).steps:
        if row.advantage is not None:
            by_step.setdefault(row.step, []).append(row.parts[name])
    for row in credit_of(grown, {**switches, "prefix": "merge"}).steps:
        if row.advantage is not None:
            assert row.parts[name] == pytest.approx(sum(by_step[row.step]) / len(by_step[row.step]), abs=1e-9)


@settings(max_examples=60, deadline=None)
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


@settings(max_examples=60, deadline=None)
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


@pytest.mark.parametrize("method", sorted(OF_OUTCOMES))
@pytest.mark.parametrize("form", ["paper", "release"])
def test_ten_thousand_steps_deep(method: str, form: str) -> None:
    """One chain of 10,000 steps with a fork in the middle and an invalid step at every tenth."""
    switches = {"method": method, "form": form}
    if not hasattr(make({"method": method})[2], "form"):
        switches.pop("form")
    deep = 10_000
    steps = []
    for n in range(deep):
        bad = n % 10 == 3
        here, there = f"s{n}", f"s{n + 1}"
        validity = Validity(["valid", "malformed"][bad])
        steps.append(
            step(n, n - 1 if n else None, state=here, next_state=there, validity=validity, value=0.5, tag="explore")
        )
    steps[-1].outcome = TRUNCATED
    middle = steps[deep // 2]
    steps.append(step(deep, middle.id, state=middle.next_state, next_state="goal", value=0.5, outcome=SUCCESS))
    grown = tree(*steps)
    validate_tree(grown)
    assert len(leaves(grown)) == 2
    credit = credit_of(grown, switches)
    repeated = "duplicate" in (getattr(make(switches)[2], "prefix", None),)
    assert len(credit.steps) == deep + 1 + (deep // 2 + 1) * repeated
    assert all(row.advantage is None or math.isfinite(row.advantage) for row in credit.steps)
    last = {row.step: row.advantage for row in credit.steps}
    assert (last[deep] or 0.0) > 0
    assert (last[deep] or 0.0) > (last[deep // 2 + 1] or 0.0) or form == "release"


@pytest.mark.parametrize("method", sorted(OF_OUTCOMES))
def test_twenty_thousand_siblings(method: str) -> None:
    """All from the initial state, every third of them invalid; what looks at all siblings of every step would take minutes."""
    wide = 20_000
    ends = [SUCCESS, FAILURE]
    steps = [step(n, None, state="a", value=0.5, tag="explore", outcome=ends[n % 2]) for n in range(wide)]
    for each in steps[::3]:
        each.validity = Validity.MALFORMED
    computed = advantages(credit_of(tree(*steps), {"method": method}))
    assert len(computed) == wide
    assert all(value is not None and math.isfinite(value) for value in computed)
    assert computed[2] != computed[1]


@pytest.mark.parametrize("method", sorted(OF_OUTCOMES))
def test_a_step_that_was_not_chosen_is_never_trained(method: str) -> None:
    """Step.mask: its action was put in the policy's way. The others keep their advantages where only outcomes count."""
    ends = {"outcome": SUCCESS}, {"outcome": FAILURE}
    plain = chains([[{"state": "a", "value": 0.5}, {"state": "b", "value": 0.5, **end}] for end in ends])
    noisy = chains([[{"state": "a", "value": 0.5}, {"state": "b", "value": 0.5, **end}] for end in ends])
    noisy.steps[2].mask = "noise"
    computed, clean = credit_of(noisy, {"method": method}), credit_of(plain, {"method": method})
    assert [(row.advantage, row.masked) for row in computed.steps if row.step == 2] == [(None, "noise")]
    if method in OUTCOME_ONLY:
        assert [row for row in computed.steps if row.step != 2] == [row for row in clean.steps if row.step != 2]
