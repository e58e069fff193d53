"""grpo-prm: grpo, plus process reward model scores compared within each state.

    A = alpha_traj * A_traj + alpha_action * A_action
    A_action = (score - p [invalid] - mean) / F over all steps from the same state

This is the baseline "GRPO + PRM" of RewardFlow (App. C.2): "state-wise GRPO" with a
model that scores every action. It is rewardflow with the model's score (Step.score) in
place of the gain r (RewardFlow eq. 5-9). A_traj is grpo's advantage. p is the penalty
of an invalid step. F is std + 1e-6, or 1 where `scale` is none. The only step taken
from a state gets A_action 0.
"""

from typing import Literal

from agentcli.credit.equations import ADVANTAGE, Equation, Evidence
from agentcli.credit.group import Grouping, division
from agentcli.credit.leaves import Leaves, outcome_among_leaves
from agentcli.credit.registry import with_release
from agentcli.credit.similarity import require_states, state_keys
from agentcli.credit.survey import AdvantageParts, survey_of
from agentcli.credit.switches import StateSwitches, in_range
from agentcli.records.types import Credit, Tree


class GrpoPrmSettings(StateSwitches, kw_only=True):
    """Settings of grpo-prm: the weights of outcome and score."""

    alpha_action: float = 1.0
    """Weight of A_action, the compared score; RewardFlow gives no value."""
    alpha_traj: float = 1.0
    """Weight of A_traj, the compared outcome; RewardFlow gives no value. 0: only the
    scores count.
    """
    scale: Literal["std", "none"] | None = None
    """Divisor F of A_action: std plus 1e-6, or none. Unset: as in `normalise`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.scale = self.scale or ("std" if self.normalise == "std" else "none")
        in_range(self, "alpha_action", "alpha_traj")


@with_release
def assign(
    tree: Tree, settings: GrpoPrmSettings, leaves_of: type[Leaves] = Leaves
) -> Credit:
    """Returns one StepCredit per row; raises DataError without states or scores.

    parts: action and trajectory (the summands, weights included), score, group (the
    mean that is subtracted from the step's score).
    """
    survey = survey_of(tree, settings)
    require_states(survey, "grpo-prm")
    needed = "grpo-prm needs a process reward model's score of every step; sample with "
    scores = survey.given("score", f"{needed}rollout --prm DIR")
    leaves = leaves_of(survey, settings, settings.normalise)
    keys = state_keys(tree, settings)
    entries = survey.entries(scores, settings.prefix)
    states = Grouping(keys, entries, division(settings.scale))

    def advantage(step: int, reward: float) -> AdvantageParts:
        penalty = survey.penalties[step]
        scale = states.scales[keys[step]]
        parts = {
            "action": settings.alpha_action * scale(scores[step] - penalty),
            "trajectory": settings.alpha_traj * leaves.scale(reward - penalty),
            "score": scores[step],
            "group": scale.center,
        }
        return parts["action"] + parts["trajectory"], parts  # RewardFlow eq. 9

    def facts(row: int, step: int, reward: float) -> Evidence:
        evidence = leaves.facts(row, step)
        words = "scores, less penalties, of the steps that leave the same state"
        evidence.compare("state", words, states, step)
        return evidence

    rows = survey.rows(settings.prefix)
    return survey.credit("grpo-prm", rows, advantage, facts=facts)


PAPER = "RewardFlow App. C.2, eq. "
EQUATIONS = (
    *outcome_among_leaves("outcome"),
    Equation("trajectory", "alpha_traj * outcome", "its part of the advantage"),
    Equation("score", None, "the process reward model's score of the step"),
    Equation(
        "compared",
        "score - penalty",
        "how its score compares in its state",
        PAPER + "7",
        among="state",
    ),
    Equation("action", "alpha_action * compared", "its part of the advantage"),
    Equation(ADVANTAGE, "action + trajectory", "both parts", PAPER + "9"),
)
