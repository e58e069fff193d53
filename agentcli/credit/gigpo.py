"""gigpo: grpo, plus a step's return compared with others from the same state.

Feng et al. 2025, "Group-in-Group Policy Optimization", section 4; release
langfengQ/verl-agent.

    A = A_traj + w * A_step
    R_t = r_t + gamma R_t+1        A_step = (R_t - p [invalid] - mean) / F over all
                                   steps of the tree taken from the same state

A_traj is grpo's advantage (leaves.Leaves). p is the penalty of an invalid step,
charged to that step alone, after discounting. F is std + 1e-6, or 1 where `scale` is
none. The only step taken from a state gets A_step 0. A shared step is one member of its
group, and its return is the mean over its leaves; with `prefix: duplicate` it is a
member once per leaf. `state` chooses the states (states.py), which can be clustered by
similarity (similarity.py). `form: release` is the same arithmetic over step rows with
prefixes repeated.
"""

from typing import Literal

from agentcli.credit.equations import ADVANTAGE, Equation, Evidence
from agentcli.credit.group import Grouping, division
from agentcli.credit.leaves import Leaves, outcome_among_leaves
from agentcli.credit.registry import with_release
from agentcli.credit.returns import Rewards, estimated_rows, following, step_rewards
from agentcli.credit.similarity import require_states, state_keys
from agentcli.credit.survey import AdvantageParts, survey_of
from agentcli.credit.switches import StateSwitches, in_range
from agentcli.records.types import Credit, Tree


class GigpoSettings(StateSwitches, kw_only=True):
    """Settings of gigpo; gamma and w as in RewardFlow Table 8."""

    gamma: float = 0.95
    """Discount per step, in (0, 1]."""
    w: float = 1.0
    """Weight of A_step, the comparison within a state."""
    scale: Literal["std", "none"] | None = None
    """Divisor F of A_step: std plus 1e-6, or none. Unset: as in `normalise`."""
    rewards: Rewards = "outcome"
    """Reward r_t in the returns of A_step. outcome: the outcome reward (`outcome`), on
    the last step. environment: the world's own reward of every step; A_traj still
    compares outcome rewards.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.scale = self.scale or ("std" if self.normalise == "std" else "none")
        in_range(self, "gamma", positive=True, most=1)
        in_range(self, "w")


@with_release
def assign(
    tree: Tree,
    settings: GigpoSettings,
    leaves_of: type[Leaves] = Leaves,
    grouping_of: type[Grouping] = Grouping,
) -> Credit:
    """Returns one StepCredit per row; raises DataError for a tree without state keys.

    parts: trajectory and step (the summands, w included), return (R_t), group (the mean
    that is subtracted from the step's score).
    """
    survey = survey_of(tree, settings)
    require_states(survey, "gigpo")
    keys = state_keys(tree, settings)
    leaves = leaves_of(survey, settings, settings.normalise)
    rewards = step_rewards(survey, settings.rewards)
    # Without a critic V is 0, and with lambda 1 the return R_t is V + A.
    nothing = [0.0] * len(rewards)
    rows = list(
        estimated_rows(survey, settings.prefix, rewards, nothing, settings.gamma, 1.0)
    )
    entries = []
    for step, _, value, gain in rows:
        returned = value + gain
        # A step that the policy did not choose is not compared, but its reward is
        # passed on.
        weight = float(survey.masked[step] is None and survey.asked[step])
        entries.append((step, returned - survey.penalties[step], weight))
    row_keys = [keys[row[0]] for row in rows]
    states = grouping_of(row_keys, entries, division(settings.scale))

    def advantage(
        step: int, reward: float, value: float, gain: float
    ) -> AdvantageParts:
        penalty = survey.penalties[step]
        returned = value + gain
        scale = states.scales[keys[step]]
        parts = {
            "trajectory": leaves.scale(reward - penalty),
            # The penalty is charged after discounting: earlier steps do not pay for it.
            "step": settings.w * scale(returned - penalty),
            "return": returned,
            "group": scale.center,
        }
        return parts["trajectory"] + parts["step"], parts

    def facts(row: int, step: int, *_: float) -> Evidence:
        evidence = leaves.facts(row, step)
        value, gain, words = following(survey, settings.prefix, rows, row)
        evidence.add("step_reward", rewards[step])
        evidence.add("next_return", value + gain, f"return of what follows: {words}")
        words = "scores return - penalty of the steps that leave the same state"
        evidence.compare("state", words, states, row)
        return evidence

    return survey.credit("gigpo", rows, advantage, facts=facts)


PAPER = "Feng et al. 2025, section 4"
EQUATIONS = (
    *outcome_among_leaves("trajectory"),
    Equation("step_reward", None, "reward of the step (credit.rewards)"),
    Equation(
        "return_", "step_reward + gamma * next_return", "discounted return", PAPER
    ),
    Equation(
        "compared",
        "return_ - penalty",
        "how its return compares in its state",
        PAPER,
        among="state",
    ),
    Equation("step", "w * compared", "its part of the advantage"),
    Equation(ADVANTAGE, "trajectory + step", "both parts", PAPER),
)
