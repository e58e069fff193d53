"""dpepo as its release computes it, with W in the place of R_step.

    W = (omega^C_width + mean_i (alpha^C_depth + gamma^M_depth + beta^M_width) / 3) / 2
    in (0, 1]

with f^(inadmissible moves) as a third equal term where `invalid_factor` is set. A
transition is a pair of consecutive actions, M_width counts occurrences, `look` is left
out of C_width, and omega is 0.80.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentcli.credit.equations import Equation
from agentcli.credit.repeats import Act, Actions, Form, PastActs, factors
from agentcli.records.types import Step, Validity

if TYPE_CHECKING:
    from agentcli.credit.dpepo import DpepoSettings

LOOK = "look"
"""An action that the release does not count as a repetition within a step."""


def read(step: Step, states: dict[int, str], history: PastActs) -> Actions:
    """What the step did; a step in one environment acts in copy 1."""
    if not step.moves:
        if step.action is None or step.validity is Validity.MALFORMED:
            return Actions([], 0, 0)
        return Actions(
            [(1, step.action, history.last(1))],
            0,
            int(step.validity is Validity.INADMISSIBLE),
        )
    there = [move for move in step.moves if move.validity is not Validity.MALFORMED]
    named = [move.action for move in step.moves if move.action.strip() != LOOK]
    acts: list[Act] = [
        (move.copy, move.action, history.last(move.copy)) for move in there
    ]
    refused = sum([move.validity is Validity.INADMISSIBLE for move in there])
    return Actions(acts, len(named) - len(set(named)), refused)


def width(act: Act, acts: Sequence[Act], history: PastActs) -> int:
    """How often the other copies made the transition, this step included."""
    copy, action, before = act
    if before is None:
        return 0
    times = 0
    for other, other_action, other_before in acts:
        if other != copy:
            times += history.transitions(other, action, before)
            times += (other_action, other_before) == (action, before)
    return times


def weigh(actions: Actions, history: PastActs, settings: "DpepoSettings") -> float:
    """W, from the counts before this step."""
    omega = settings.omega or 1.0
    depth, transitions, widths = factors(actions.acts, width, history, settings)
    terms = [
        omega**actions.repeated,
        (depth + transitions + widths) / 3 / len(actions.acts),
    ]
    if settings.invalid_factor is not None:
        terms.append(settings.invalid_factor**actions.refused)
    return sum(terms) / len(terms)


def equations(settings: "DpepoSettings") -> tuple[Equation, ...]:
    """From the counts to W."""
    terms = "omega ** C_width + (mean_depth + mean_transitions + mean_width) / 3"
    whole = f"({terms}) / 2"
    if settings.invalid_factor is not None:
        whole = f"({terms} + invalid_factor ** refused) / 3"
    return (Equation("step", whole, "W of the release"),)


FORM = Form(read, width, weigh, equations)
