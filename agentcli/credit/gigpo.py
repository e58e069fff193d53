"""gigpo: grpo, plus a step's return compared with others from the same state.

Feng et al. 2025, "Group-in-Group Policy Optimization", section 4; release
langfengQ/verl-agent.

    A = A_traj + w * A_step
    R_t = r_t + gamma R_t+1        A_step = (R_t - p [invalid] - mean) / F over all
                                   steps of the tree taken from the same state

A_traj is grpo's advantage (group.outcome_scale). p is the penalty of an invalid step,
charged to that step alone, after discounting. F is std + 1e-6, or 1 where `scale` is
none. The only step taken from a state gets A_step 0. A shared step is one member of its
group, and its return is the mean over its leaves; with `prefix: duplicate` it is a
member once per leaf. `state` chooses the states (states.py), which can be clustered by
similarity (similarity.py). `form: release` is the same arithmetic over step rows with
prefixes repeated.
"""

from typing import Literal

from agentcli.credit.equations import ADVANTAGE, Equation, Evidence
from agentcli.credit.group import SMALLEST_STD, Grouping, division, outcome_scale
from agentcli.credit.once import once
from agentcli.credit.release.group import smallest_std
from agentcli.credit.returns import EstimatedRow, Rewards, estimated_rows, step_rewards
from agentcli.credit.similarity import require_states, state_keys
from agentcli.credit.survey import AdvantageParts, Survey, survey_of
from agentcli.credit.switches import StateSwitches, in_range
from agentcli.credit.terms import (
    add_group,
    following,
    group_evidence,
    outcome_among_leaves,
)
from agentcli.records.types import Credit, Tree

WITHOUT = {
    "distance": "it knows no graph",
    "pruning": "it groups every step by its state",
}
PAPER = "Feng et al. 2025, section 4"
EQUATIONS = (
    *outcome_among_leaves("trajectory"),
    Equation("step_reward", None, "reward of the step (credit.rewards)"),
    Equation(
        "return_",
        "step_reward + gamma * next_return",
        "discounted return",
        PAPER,
    ),
    Equation(
        "compared",
        "return_ - penalty",
        "how its return compares in its state",
        PAPER,
        among="state",
    ),
    Equation("step", "w * compared", "its part of the advantage"),
    Equation(
        ADVANTAGE,
        "trajectory + step",
        "both parts",
        PAPER,
    ),
)


class GigpoSettings(StateSwitches, kw_only=True):
    """Settings of gigpo, with the defaults of the paper."""

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


def assign(tree: Tree, settings: GigpoSettings) -> Credit:
    """Returns one StepCredit per row; raises DataError for a tree without state keys.

    parts: trajectory and step (the summands, w included), return (R_t), group (the mean
    that is subtracted from the step's score).
    """
    survey = survey_of(tree, settings)
    require_states(tree, survey, "gigpo")
    keys = state_keys(tree, settings)
    trajectory_scale = outcome_scale(survey, settings, settings.normalise)
    rows = _rows(tree, survey, settings)
    scales = _grouping(rows, keys, survey, settings).scales

    def row_advantage(
        step: int,
        reward: float,
        value: float,
        gain: float,
    ) -> AdvantageParts:
        penalty = survey.penalties[step]
        # Without a critic V is 0; with lambda 1 the estimate is the return.
        step_return = value + gain
        scale = scales[keys[step]]
        parts = {
            "trajectory": trajectory_scale(reward - penalty),
            "step": settings.w * scale(step_return - penalty),
            "return": step_return,
            "group": scale.center,
        }
        return parts["trajectory"] + parts["step"], parts

    return survey.credit("gigpo", rows, row_advantage)


@once
def _rows(
    tree: Tree,
    survey: Survey,
    settings: GigpoSettings,
) -> list[EstimatedRow]:
    """The rows with their returns: there is no critic, so V is 0 and lambda is 1."""
    rewards = step_rewards(tree, survey, settings.rewards)
    values = [0.0] * len(rewards)
    rows = estimated_rows(
        survey, settings.prefix, rewards, values, settings.gamma, gae_lambda=1.0
    )
    return list(rows)


@once
def _grouping(
    rows: list[EstimatedRow],
    keys: list[str],
    survey: Survey,
    settings: GigpoSettings,
) -> Grouping:
    """The rows grouped by the state they start in, scored by return less penalty."""
    entries = []
    for step, _, value, advantage in rows:
        weight = float(survey.masked[step] is None and survey.asked[step])
        entries.append((step, value + advantage - survey.penalties[step], weight))
    normalise = division(settings.scale)
    smallest = SMALLEST_STD
    if settings.form == "release":
        smallest = smallest_std(normalise)
    return Grouping(
        [keys[row[0]] for row in rows],
        entries,
        normalise,
        smallest,
    )


def evidence(
    tree: Tree,
    settings: GigpoSettings,
    row: int,
) -> Evidence:
    """The evidence that EQUATIONS need for one row."""
    survey = survey_of(tree, settings)
    evidence = group_evidence(tree, survey, settings, row)
    rows = _rows(tree, survey, settings)
    step = rows[row][0]
    value, advantage, words = following(tree, survey, settings.prefix, rows, row)
    evidence.add("step_reward", step_rewards(tree, survey, settings.rewards)[step])
    evidence.add("next_return", value + advantage, f"return of what follows: {words}")
    grouping = _grouping(rows, state_keys(tree, settings), survey, settings)
    words = "scores return - penalty of the steps that leave the same state"
    add_group(evidence, "state", words, grouping, row)
    return evidence
