"""Trees to episodes: every root-to-leaf path reduced to the counts that metrics are
made of (methods.md section 6).

A response that acts in several copies of the environment is one step of as many moves.
A step in one environment is one move, in copy 1, as in credit.dpepo. A move may be
repetitive or inadmissible; a response may be malformed or tagged.
"""

from collections.abc import Iterable, Iterator

from agentcli.records.trees import acts_by_copy, paths
from agentcli.records.types import Episode, Outcome, Step, StopReason, Tree, Validity


def episodes(tree: Tree) -> Iterator[Episode]:
    """One Episode per trajectory, in the order of the tree's leaves; the first carries
    the tree's ledger.
    """
    for sample, trajectory in enumerate(paths(tree)):
        last = trajectory[-1]
        moves = [act for step in trajectory for _, act in acts_by_copy(step)]
        yield Episode(
            task=tree.task.id,
            kind=tree.task.kind,
            sample=sample,
            outcome=last.outcome or Outcome.ERRORED,
            score=sum(step.reward for step in trajectory),
            steps=sum(step.stop is not StopReason.OVERLONG for step in trajectory),
            moves=len(moves),
            tokens=sum(len(step.token_ids) for step in trajectory),
            repetitive_steps=repetitions(trajectory),
            explore_steps=sum(step.tag == "explore" for step in trajectory),
            malformed_steps=sum(
                step.validity is Validity.MALFORMED for step in trajectory
            ),
            inadmissible_steps=sum(
                move.validity is Validity.INADMISSIBLE for move in moves
            ),
            error=last.error,
            ledger=tree.ledger if sample == 0 else None,
        )


def repetitions(trajectory: Iterable[Step]) -> int:
    """The moves whose action already occurred in this episode from the same true state,
    in the same copy (000 Table 6).

    The text that was read last is no part of a state, so an action that was tried in
    vain and is tried again is repeated. A malformed move has no action to repeat.
    """
    transitions: set[tuple[int, str, str]] = set()
    repeated = 0
    for step in trajectory:
        for copy, act in acts_by_copy(step):
            if act.action is None or act.validity is Validity.MALFORMED:
                continue
            transition = (copy, act.state, act.action)
            repeated += transition in transitions
            transitions.add(transition)
    return repeated
