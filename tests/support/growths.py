"""Every way a tree grows, and what must hold of any tree."""

from collections import Counter
from typing import Any

import pytest
from agentcli.prompts.protocol import UNREADABLE
from agentcli.records.trees import children, leaves, paths
from agentcli.records.types import Outcome, Step, StopReason, Tree, Validity
from scripted import shared_words

GROWTHS: dict[str, dict[str, Any]] = {
    "chain": {"method": "chain"},
    "spark": {"method": "spark"},
    "spark at the step": {"method": "spark", "fork": "at"},
    "spark by coin": {"method": "spark", "branch": "fixed:.3"},
    "spark by entropy": {"method": "spark", "branch": "entropy"},
    "arpo": {"method": "arpo"},
    "carl": {"method": "carl"},
    "carl at random": {"method": "carl", "criterion": "random"},
    "treerl": {"method": "treerl"},
    "treerpo": {"method": "treerpo"},
    "dpepo": {"method": "dpepo", "copies": 3},
    "votes on actions": {"method": "test-time-branch", "vote": "action"},
    "votes on outcomes": {"method": "test-time-branch", "vote": "outcome"},
}
VOTES = {"votes on actions", "votes on outcomes"}
"""Growths that sample more than they keep."""
SPARKS = {"spark", "spark at the step", "spark by coin", "spark by entropy"}
"""Growths that may leave a part of the leaf budget unused."""
growths = pytest.mark.parametrize("growth", GROWTHS)


def check_tree(tree: Tree, max_steps: int) -> None:
    """Steps end where they must, and siblings and forks see what their parent left."""
    for trajectory in paths(tree):
        assert len(trajectory) <= max_steps
        assert [step.outcome is None for step in trajectory] == [True] * (len(trajectory) - 1) + [False]
        assert (len(trajectory) == max_steps) or trajectory[-1].outcome is not Outcome.TRUNCATED
    for parent, siblings in children(tree).items():
        assert len({(step.prompt, step.state, step.observation, *step.admissible) for step in siblings}) == 1
        if parent is not None:
            assert siblings[0].observation == tree.steps[parent].next_observation
            assert siblings[0].state == tree.steps[parent].next_state


def check_copies(tree: Tree, copies: int, start: tuple[str, str]) -> Counter[str]:
    """In every copy the moves of a trajectory hang together from `start` on (state key, text), none follows its end, and the
    trajectory ends as its copies do. Says what there was to check, and how often."""
    met: Counter[str] = Counter()
    for trajectory in paths(tree):
        now = dict.fromkeys(range(1, copies + 1), start)
        ends: dict[int, Outcome] = {}
        acted: Counter[int] = Counter()
        unread = False
        for step in trajectory:
            keys, texts = ("\n".join(f"env_{copy}: {seen[part]}" for copy, seen in now.items()) for part in (0, 1))
            assert (step.state, step.observation) == (keys, UNREADABLE if unread else texts)
            unread = is_malformed(step)
            numbers = [move.copy for move in step.moves]
            assert numbers == sorted(set(numbers))
            met["several at once"] += len(numbers) > 1
            met["beside an end"] += bool(ends and numbers)
            for move in step.moves:
                assert (move.state, move.observation) == now[move.copy]
                assert move.copy not in ends
                met["again"] += acted[move.copy] > 0
                met["for the first time after others"] += acted[move.copy] == 0 < acted.total()
                now[move.copy] = move.next_state, move.next_observation
                if move.outcome is not None:
                    ends[move.copy] = move.outcome
            acted.update(numbers)
        outcome = trajectory[-1].outcome
        won, over = Outcome.SUCCESS in ends.values(), len(ends) == copies
        whole = Outcome.SUCCESS if won else Outcome.FAILURE if over else Outcome.TRUNCATED
        assert outcome in (whole, Outcome.ERRORED)
        met[str(outcome)] += 1
    return met


def check_ledger(tree: Tree) -> None:
    """The sums of a tree that holds all that was sampled; its policy's tokens are the words of the prompt."""
    ledger, siblings = tree.ledger, children(tree)
    first = [group[0] for group in siblings.values()]
    later = [step for group in siblings.values() for step in group[1:]]
    assert ledger.leaves == len(leaves(tree)) == sum(step.outcome is not None for step in tree.steps)
    assert ledger.steps == sum(map(executed, tree.steps))
    assert ledger.forks == sum(len(group) - 1 for parent, group in siblings.items() if parent is not None)
    several = [[did(step) for step in group if answered(step)] for group in siblings.values()]
    several = [group for group in several if len(group) > 1]
    assert ledger.siblings == sum(map(len, several))
    assert ledger.distinct_siblings == sum(len(set(group)) for group in several)
    assert ledger.generated_tokens == sum(len(step.token_ids) for step in tree.steps)
    assert ledger.prompt_tokens == sum(map(prompt_words, tree.steps))
    before = {step.id: tree.steps[step.parent].prompt for step in first if step.parent is not None}
    partly = sum(shared_words(step.prompt, before.get(step.id, "")) for step in first if step.response)
    assert ledger.shared_prompt_tokens == partly + sum(map(prompt_words, later))


def answered(step: Step) -> bool:
    """The policy was asked, and gave a response."""
    return step.stop is not StopReason.OVERLONG and (step.error is None or bool(step.response))


def did(step: Step) -> tuple[object, ...]:
    """What tells a step's action from another's."""
    return (step.action, *sorted((move.copy, move.action) for move in step.moves))


def executed(step: Step) -> int:
    """What a step counts: its moves, or itself where it is one; an engine that broke and a policy that was not asked executed
    nothing."""
    if step.moves or step.error is not None or step.stop is StopReason.OVERLONG:
        return len(step.moves)
    return 1


def prompt_words(step: Step) -> int:
    """Of the prompt, where it was answered."""
    return len(step.prompt.split()) if step.response else 0


def is_malformed(step: Step) -> bool:
    """Nothing was executed, though it counts as a step."""
    return step.validity is Validity.MALFORMED
