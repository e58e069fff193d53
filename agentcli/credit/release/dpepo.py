"""dpepo as its release computes it, with W in place of R_step.

    W = (omega^C_width + mean_i (alpha^C_depth + gamma^M_depth + beta^M_width) / 3) / 2
    in (0, 1]

Where `invalid_factor` f is set, f^(inadmissible moves) is a third term and the sum is
divided by 3. A transition is a pair of consecutive actions, M_width counts occurrences,
C_width ignores the action `look`, and omega is 0.80.
"""

from collections.abc import Sequence

from agentcli.credit.dpepo import NO_ACTION, DpepoSettings, Repetition
from agentcli.credit.equations import Equation
from agentcli.credit.repeats import Act, PastActs, Repeats, power_sum
from agentcli.records.types import Step

LOOK = "look"
"""An action whose repetition within a step the release does not count."""


class ReleaseRepetition(Repetition):
    """What a step repeats, and its W, as the authors' code computes it."""

    def before(
        self, copy: int, states: dict[int, str], history: PastActs
    ) -> str | None:
        """The copy's previous action."""
        return history.latest(copy)

    def within(self, step: Step, acts: Sequence[Act]) -> int:
        """C_width, with malformed moves counted too."""
        actions = [move.action for move in step.moves if move.action.strip() != LOOK]
        return len(actions) - len(set(actions))

    def width(self, act: Act, acts: Sequence[Act], history: PastActs) -> int:
        """M_width: how often other copies made the transition, this step included."""
        copy, action, before = act
        # The first action of a copy follows no other, so it makes no transition.
        if before is None:
            return 0
        times = 0
        for other, other_action, other_before in acts:
            if other != copy:
                times += history.transitions(other, action, before)
                times += (other_action, other_before) == (action, before)
        return times

    def weigh(self, repeats: Repeats | None, settings: DpepoSettings) -> float:
        """W, the weight of the step."""
        if repeats is None:
            return NO_ACTION
        depth = power_sum(settings.alpha, repeats.depth)
        transitions = power_sum(settings.gamma, repeats.transitions)
        widths = power_sum(settings.beta, repeats.widths)
        omega = settings.omega or 1.0
        terms = [
            omega**repeats.within,
            (depth + transitions + widths) / 3 / len(repeats.depth),
        ]
        if settings.invalid_factor is not None:
            terms.append(settings.invalid_factor**repeats.inadmissible)
        return sum(terms) / len(terms)

    def equations(self, settings: DpepoSettings) -> tuple[Equation, ...]:
        """The equation that defines W."""
        terms = "omega ** C_width + (mean_depth + mean_transitions + mean_width) / 3"
        formula = f"({terms}) / 2"
        if settings.invalid_factor is not None:
            formula = f"({terms} + invalid_factor ** inadmissible) / 3"
        return (Equation("step", formula, "W of the release"),)
