"""Trees to episodes: every root-to-leaf path reduced to the counts that metrics are made of (methods.md section 6)."""

from collections.abc import Iterator

from agentcli.records.trees import paths
from agentcli.records.types import Episode, Outcome, Step, Tree, Validity


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
            tokens=sum(len(step.token_ids) for step in trajectory),
            repetitive_steps=repetitions(trajectory),
            explore_steps=sum(step.tag == "explore" for step in trajectory),
            malformed_steps=sum(step.validity is Validity.MALFORMED for step in trajectory),
            inadmissible_steps=sum(step.validity is Validity.INADMISSIBLE for step in trajectory),
            error=last.error,
            ledger=tree.ledger if sample == 0 else None,
        )


def repetitions(trajectory: list[Step]) -> int:
    """Steps whose action already occurred in this episode from the same state (000 Table 6); of a step in several copies, all
    its moves in the same copy. A malformed step has no action to repeat."""
    seen: set[tuple[int, str, str]] = set()
    repeated = 0
    for step in trajectory:
        moves = {(move.copy, move.state, move.action) for move in step.moves}
        if step.action is not None:
            moves.add((0, step.state, step.action))
        repeated += bool(moves) and moves <= seen
        seen |= moves
    return repeated
