"""Trees to episodes: every root-to-leaf path reduced to the counts that metrics are made of (methods.md section 6).

A response that acts in several copies of the environment is one step of as many moves; a step in one environment is one move, in
copy 1, as for credit.dpepo. What is repetitive or inadmissible is a move, what is malformed or tagged a response.
"""

from collections.abc import Iterable, Iterator

from agentcli.records.trees import paths
from agentcli.records.types import Episode, Move, Outcome, Step, Tree, Validity


def episodes(tree: Tree) -> Iterator[Episode]:
    """One Episode per trajectory, in the order of the tree's leaves; the first carries the tree's ledger."""
    for sample, trajectory in enumerate(paths(tree)):
        last = trajectory[-1]
        yield Episode(
            task=tree.task.id,
            kind=tree.task.kind,
            sample=sample,
            outcome=last.outcome or Outcome.ERRORED,
            score=sum(step.reward for step in trajectory),
            steps=len(trajectory),
            moves=sum(len(_acts(step)) for step in trajectory),
            tokens=sum(len(step.token_ids) for step in trajectory),
            repetitive_steps=repetitions(trajectory),
            explore_steps=sum(step.tag == "explore" for step in trajectory),
            malformed_steps=sum(step.validity is Validity.MALFORMED for step in trajectory),
            inadmissible_steps=sum(
                act.validity is Validity.INADMISSIBLE for step in trajectory for _, act in _acts(step)
            ),
            error=last.error,
            ledger=tree.ledger if sample == 0 else None,
        )


def repetitions(trajectory: Iterable[Step]) -> int:
    """Moves whose action already occurred in this episode from the same state (000 Table 6) in the same copy: those of M_depth > 0
    (004 eq. 4). A malformed one has no action to repeat."""
    seen: set[tuple[int, str, str]] = set()
    repeated = 0
    for step in trajectory:
        for copy, act in _acts(step):
            if act.action is None or act.validity is Validity.MALFORMED:
                continue
            transition = (copy, act.state, act.action)
            repeated += transition in seen
            seen.add(transition)
    return repeated


def _acts(step: Step) -> list[tuple[int, Step | Move]]:
    """The moves of a step and their copies; a copy moves at most once in a step."""
    return [(move.copy, move) for move in step.moves] or [(1, step)]
