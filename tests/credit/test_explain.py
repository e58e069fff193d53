"""Every number of an account: groups recomputed from their members, lines from their formulas, the advantage from the last line."""

import ast
import math
import operator
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from agentcli.credit.equations import Equation, Evidence, Line, ScoreGroup, evaluate
from agentcli.credit.explain import Explanation, explain
from agentcli.credit.registry import Explainer, explainer, make
from agentcli.credit.survey import AdvantageParts, survey_of
from agentcli.records.types import Credit, Tree
from credit_trees import ERRORED, FAILURE, OF_OUTCOMES, SUCCESS, chains, outcomes, random_trees, step, tree, walk
from hypothesis import given, settings
from hypothesis import strategies as st
from refusal import refusal, refused
from test_credit_properties import credit_of, every

OPERATORS = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": operator.truediv,
    "Pow": operator.pow,
}
EXTRA: dict[str, list[dict[str, Any]]] = {
    "rewardflow": [
        {"similarity": "difflib:0.9", "pool": "mean"},
        {"distance": "mean", "gain": "discounted", "group": "all", "no_op_penalty": 0.05},
        {"distance": "mean", "gain": "discounted", "group": "eq5"},
        {"alpha_action": 0.5, "alpha_traj": 2.0, "scale": "none", "pruning": False},
        {"form": "release", "loop_steps": 3},
    ],
    "dpepo": [
        {"invalid_factor": 0.5},
        {"invalid_factor": 0.5, "form": "release"},
        {"action_reward": False, "form": "paper"},
        {"transition_reward": False, "invalid_factor": 0.5, "form": "paper"},
        {"action_reward": False, "transition_reward": False, "form": "paper"},
    ],
    "gigpo": [{"scale": "none", "form": "release"}, {"w": 2.0, "similarity": "difflib:0.9"}],
    "rlvmr": [{"w": 2.0, "scale": "none"}],
}


def explanation(grown: Tree, switches: dict[str, Any], row: int) -> Explanation:
    name, assign, settings = make(switches)
    return explain(grown, assign(grown, settings), row, settings, explainer(name))


def python(formula: str, numbers: Mapping[str, float]) -> float:
    """Arithmetic worked out apart from the package: Python's own operators, one after the other on a stack."""
    done: list[float] = []
    for node in _postfix(ast.parse(formula, mode="eval").body):
        if isinstance(node, ast.Name):
            done.append(numbers[node.id])
        elif isinstance(node, ast.Constant):
            done.append(node.value)
        else:
            second, first = done.pop(), done.pop()
            done.append(OPERATORS[type(node).__name__](first, second))
    (value,) = done
    return value


def _postfix(node: ast.expr) -> list[Any]:
    if isinstance(node, ast.BinOp):
        return [*_postfix(node.left), *_postfix(node.right), node.op]
    if isinstance(node, ast.UnaryOp):
        return [ast.Constant(0.0), *_postfix(node.operand), ast.Sub()]
    return [node]


def recompute(account: list[Line | ScoreGroup]) -> float:
    """The last line's value, from the given numbers and the members alone."""
    numbers: dict[str, float] = {}
    value = math.nan
    for entry in account:
        if isinstance(entry, ScoreGroup):
            weight = math.fsum(member.weight for member in entry.members)
            mean = math.fsum(member.weight * member.score for member in entry.members) / weight
            numbers |= {f"W_{entry.name}": weight, f"mean_{entry.name}": mean}
            if entry.std is not None:
                squares = math.fsum(member.weight * (member.score - mean) ** 2 for member in entry.members)
                numbers[f"std_{entry.name}"] = math.sqrt(squares / (weight - 1))
        else:
            value = entry.value if entry.formula is None else python(entry.formula, numbers)
            assert value == pytest.approx(entry.value, abs=1e-9), entry
            numbers[entry.name] = value
    return value


@settings(max_examples=150, deadline=None)
@given(random_trees(), st.sampled_from(sorted(OF_OUTCOMES)).flatmap(lambda name: every((name,))), st.data())
def test_the_arithmetic_of_every_account_gives_the_advantage(
    grown: Tree, switches: dict[str, Any], data: st.DataObject
) -> None:
    extra = data.draw(st.sampled_from([{}, *EXTRA.get(switches["method"], [])]))
    switches = {**switches, **extra}
    if extra.get("pool") or extra.get("gain") or "pruning" in extra:
        switches["form"] = "paper"
    if switches.get("form") == "release":
        switches["penalty"] = "inside"
    for number in data.draw(st.sets(st.integers(0, len(grown.steps) - 1), max_size=2)):
        grown.steps[number].mask = "noise"
    for row, entry in enumerate(credit_of(grown, switches).steps):
        explained = explanation(grown, switches, row)
        assert (explained.step, explained.advantage, explained.rows[explained.row]) == (
            entry.step,
            entry.advantage,
            entry.advantage,
        )
        assert (explained.account == []) == (entry.advantage is None) == (explained.why_masked is not None)
        if entry.advantage is not None:
            assert recompute(explained.account) == pytest.approx(entry.advantage, abs=1e-9)
            text = msgspec.json.encode(explained)
            assert msgspec.json.encode(msgspec.json.decode(text, type=Explanation)) == text


def lines_of(explained: Explanation) -> dict[str, Line]:
    return {entry.name: entry for entry in explained.account if isinstance(entry, Line)}


def test_a_worked_account() -> None:
    """Rewards 1, 0, 0 by hand: mean 1/3, std sqrt(1/3); a success is (1 - 1/3) / (0.57735 + 1e-6) = 1.154699."""
    explained = explanation(outcomes([1, 1, 1], [SUCCESS, FAILURE, FAILURE]), {"method": "grpo"}, 0)
    (group,) = [entry for entry in explained.account if isinstance(entry, ScoreGroup)]
    assert [(member.step, member.score, member.explained) for member in group.members] == [
        (0, 1.0, True),
        (1, 0.0, False),
        (2, 0.0, False),
    ]
    assert (group.mean, group.std) == (pytest.approx(1 / 3), pytest.approx(math.sqrt(1 / 3)))
    last = explained.account[-1]
    assert isinstance(last, Line)
    assert last.formula == "(reward - penalty - mean_leaves) / (std_leaves + 1e-06)"
    assert last.value == pytest.approx(1.154698539)
    assert last.source == "DeepSeekMath section 4.1.2, RewardFlow eq. 8"
    assert explained.peers[0].outcome is SUCCESS


def test_values_come_from_hops() -> None:
    """a-b-c is two hops from success: R = 0.81 and 0.9, a gain of 0.09."""
    explained = explanation(chains([walk("abc", SUCCESS), walk("abd", FAILURE)]), {"method": "rewardflow"}, 0)
    lines = lines_of(explained)
    assert (lines["hops"].value, lines["next_hops"].value) == (2, 1)
    assert (lines["value"].formula, lines["value"].source) == ("gamma ** hops", "RewardFlow eq. 3")
    assert lines["gain"].value == pytest.approx(0.09)


def test_every_row_of_a_shared_step_has_its_own_account() -> None:
    shared = tree(step(0, None), step(1, 0, outcome=SUCCESS), step(2, 0, outcome=FAILURE))
    switches = {"method": "grpo", "prefix": "duplicate"}
    rows = [n for n, entry in enumerate(credit_of(shared, switches).steps) if entry.step == 0]
    explained = [explanation(shared, switches, row) for row in rows]
    assert [each.row for each in explained] == [0, 1]
    assert [lines_of(each)["reward"].value for each in explained] == [1.0, 0.0]
    assert explained[0].rows == explained[1].rows == [each.advantage for each in explained]
    merged = explanation(shared, {"method": "grpo"}, 0)
    assert (merged.advantage, lines_of(merged)["leaves"].value) == (0.0, 2.0)


def test_zeros_and_masks_have_a_reason() -> None:
    equal = explanation(outcomes([1, 1], [FAILURE, FAILURE]), {"method": "grpo"}, 0)
    assert "score the same" in lines_of(equal)["advantage"].meaning
    alone = explanation(outcomes([2], [SUCCESS]), {"method": "grpo"}, 0)
    assert "nothing to compare" in lines_of(alone)["advantage"].meaning
    rows = explanation(outcomes([2], [SUCCESS]), {"method": "grpo", "form": "release"}, 0)
    assert "its own" in lines_of(rows)["advantage"].meaning
    lost = explanation(chains([walk("abd", FAILURE), walk("acd", FAILURE)]), {"method": "rewardflow"}, 0)
    assert "nobody succeeded" in lines_of(lost)["closer"].meaning
    errored = explanation(outcomes([1, 1], [ERRORED, SUCCESS]), {"method": "grpo"}, 0)
    assert (errored.masked, errored.account) == ("errored", [])
    assert "errored" in (errored.why_masked or "")
    only = explanation(outcomes([2, 2], [SUCCESS, FAILURE]), {"method": "carl"}, 1)
    assert "CARL eq. 13" in (only.why_masked or "")
    scratch = msgspec.structs.replace(outcomes([2, 2], [SUCCESS, FAILURE]), roots=2)
    explained = explanation(scratch, {"method": "carl", "first_phase": "forked"}, 0)
    assert (explained.masked, "CARL App. C.1" in (explained.why_masked or "")) == ("first phase", True)
    inherits = explanation(outcomes([2, 2], [SUCCESS, FAILURE]), {"method": "carl", "update": "all"}, 1)
    assert lines_of(inherits)["advantage"].meaning.endswith("of step 0")


@pytest.mark.parametrize("name", sorted(OF_OUTCOMES))
def test_every_account_names_equations_and_every_group_its_own_entry(name: str) -> None:
    grown = chains([walk("abc", SUCCESS), walk("abd", FAILURE, {1}), walk("acd", FAILURE)])
    for each in grown.steps:
        each.value = 0.25
    explained = explanation(grown, {"method": name}, 1 if name not in ("carl", "treerl", "treerpo") else 0)
    assert any(line.source for line in lines_of(explained).values())
    assert explained.changed == {}
    for entry in explained.account:
        if isinstance(entry, ScoreGroup) and entry.of == "step":
            assert any(member.explained for member in entry.members), entry.name


@pytest.mark.parametrize("name", sorted(OF_OUTCOMES))
def test_a_deep_tree_is_explained(name: str) -> None:
    """10,000 steps in a row, beside a short trajectory."""
    deep = [{"state": f"s{n}", "next_state": f"s{n + 1}", "value": 0.5} for n in range(10_000)]
    deep[-1]["outcome"] = SUCCESS
    grown = chains([deep, [{"state": "s0", "outcome": FAILURE, "value": 0.5}]])
    explained = explanation(grown, {"method": name, **({"update": "all"} if name == "carl" else {})}, 9_000)
    assert recompute(explained.account) == pytest.approx(explained.advantage, abs=1e-9)


def test_an_account_that_comes_to_another_number_is_refused() -> None:
    grown = outcomes([1, 1], [SUCCESS, FAILURE])
    _, assign, settings = make({"method": "grpo"})

    def with_unit(grown: Tree, switches: Any) -> Credit:
        """grpo, which also says what one unit is."""
        rows = iter(assign(grown, switches).steps)

        def advantage(*row: float) -> AdvantageParts:
            entry = next(rows)
            return entry.advantage or 0.0, entry.parts

        survey = survey_of(grown, switches)
        return survey.credit("grpo", survey.rows("merge"), advantage, facts=lambda *row: Evidence({"unit": 1.0}))

    def explained(*equations: Equation) -> Explanation:
        explainer = Explainer(equations, with_unit) if equations else None
        return explain(grown, assign(grown, settings), 0, settings, explainer)

    with refusal(1, ("step 0:", "0.5", "0.70")):
        explained(Equation("advantage", "baseline", "made up"))
    refused(lambda: explained(Equation("value", "reward - penalty", "not the last one")), 1, names="advantage")
    with refusal(1, ("step 0:", "baseline", "0.5")):
        explained(
            Equation("baseline", "reward", "not what the method has"),
            Equation("advantage", "(reward - 0.5) / (2 ** -0.5 + 1e-6)", "right"),
        )
    with refusal(1, ("EQUATIONS", "'nothing'")):
        explained(Equation("advantage", "nothing", "a name that nobody gives"))
    right = explained(
        Equation("spread", "2 ** -0.5 * unit", "spread of 1 0"),
        Equation("advantage", "(reward - penalty - baseline) / (spread + 1e-6)", "grpo by its parts"),
    )
    assert [entry.name for entry in right.account] == [
        "unit",
        "spread",
        "reward",
        "penalty",
        "baseline",
        "advantage",
    ]
    bare = explained()
    assert (bare.account, sorted(bare.parts)) == ([], ["baseline", "penalty", "reward"])


@pytest.mark.parametrize("formula", ["abs(x)", "x if x else 0", "'x'", "x @ x", "[x]"])
def test_formulas_are_arithmetic_and_nothing_else(formula: str) -> None:
    refused(lambda: evaluate(formula, {"x": 1.0}), 1, names=formula)
    assert evaluate("-x + 2 * (y - 1) ** 2 / 4", {"x": 1.0, "y": 3.0}) == 1.0
