"""Walking and checking trees."""

import credit_trees
import msgspec
import pytest
from agentcli.records.trees import children, leaves, paths, validate_tree
from agentcli.records.types import Outcome, StopReason, Tree
from refusal import refused


def tree(*parents: int | None) -> Tree:
    inner = set(parents)
    steps = []
    for number, parent in enumerate(parents):
        steps.append(credit_trees.step(number, parent, outcome=None if number in inner else Outcome.SUCCESS))
    return credit_trees.tree(*steps)


def test_a_forked_tree_has_one_path_per_leaf() -> None:
    forked = tree(None, 0, 0, 2, None)
    assert [[step.id for step in path] for path in paths(forked)] == [[0, 1], [0, 2, 3], [4]]
    assert [step.id for step in leaves(forked)] == [1, 3, 4]
    assert [step.id for step in children(forked)[None]] == [0, 4]
    validate_tree(forked)


def test_depth_is_no_limit() -> None:
    deep = tree(None, *range(9_999))
    assert len(paths(deep)[0]) == 10_000
    validate_tree(deep)


@pytest.mark.parametrize(
    ("step", "change", "names"),
    [
        (1, {"parent": 1}, "steps[1].parent: 1"),
        (1, {"parent": -1}, "steps[1].parent"),
        (1, {"id": 5}, "steps[1].id"),
        (0, {"outcome": Outcome.FAILURE}, "steps[0].outcome"),
        (1, {"outcome": None}, "steps[1].outcome"),
        (0, {"token_ids": [1]}, "steps[0].logprobs: 0 for 1"),
        (0, {"token_ids": [1], "logprobs": [float("nan")]}, "steps[0].logprobs"),
        (1, {"stop": StopReason.OVERLONG}, ("steps[1].stop: overlong", "success")),
        (0, {"stop": StopReason.OVERLONG}, ("steps[0].stop: overlong", "none")),
        (0, {"reward": float("inf")}, "steps[0].reward: inf"),
        *((0, {"tools": tools}, "steps[0].tools: ") for tools in ("x", "5", "[]", "{}", '[{"a":1}]', "[" * 100_000)),
        (0, {"tools": '[{"function":{"name":"s"},"x":1e999}]'}, "steps[0].tools: "),
        (0, {"tools": '[{"function":{"name":""}}]'}, "steps[0].tools: "),
    ],
)
def test_a_damaged_tree_is_refused_by_step_and_field(step: int, change: dict, names: str | tuple[str, ...]) -> None:
    damaged = tree(None, 0)
    damaged.steps[step] = msgspec.structs.replace(damaged.steps[step], **change)
    assert refused(lambda: validate_tree(damaged, "trees.jsonl:1"), 3, names).startswith("trees.jsonl:1: ")
