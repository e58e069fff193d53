"""ppo: generalised advantage estimation with values stored while sampling.

Schulman et al. 2016, eq. 11-16; 2017:

    delta_t = r_t + gamma V(s_t+1) - V(s_t)
    estimate_t = delta_t + gamma lambda estimate_t+1
    A_t = estimate_t - p [invalid]

V(s_t) is the critic's Step.value; a tree without values is refused. There is no
bootstrapping after a leaf: a truncated episode is worth the rewards within its horizon,
as for its outcome. Each return has exactly one V(s_t) subtracted, however long the
trajectory continues. A shared step has the mean over its leaves (`prefix: merge`) or
one row per leaf. The penalty is charged to its own step. It is also part of `return`,
the critic's target, so the baseline learns it.
"""

from typing import Literal

from agentcli.credit.equations import ADVANTAGE, PENALTY, Equation, Evidence
from agentcli.credit.returns import Rewards, estimated_rows, following, step_rewards
from agentcli.credit.survey import AdvantageParts, Survey, survey_of
from agentcli.credit.switches import LARGEST, Switches, in_range, require
from agentcli.errors import DataError
from agentcli.records.faults import shown
from agentcli.records.types import Credit, Tree


class PpoSettings(Switches, kw_only=True):
    """Settings of ppo: discounts and rewards."""

    gamma: float = 1.0
    """Discount per step, in (0, 1]."""
    gae_lambda: float = 0.95
    """Lambda of the estimate. 0: one step ahead, least variance. 1: the whole return
    less V(s), least bias.
    """
    rewards: Rewards = "outcome"
    """Reward r_t. outcome: the outcome reward (`outcome`), on the last step.
    environment: the world's own reward of every step.
    """
    prefix: Literal["merge", "duplicate"] = "merge"
    """A step shared by several leaves: one row with the mean over its leaves, or one
    row per leaf.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, "gamma", positive=True, most=1)
        in_range(self, "gae_lambda", most=1)
        if self.rewards == "outcome":
            return
        # The world's own rewards are used, so outcomes are not rewarded.
        require(
            self.success_reward == 1.0,
            "success_reward",
            self.success_reward,
            "left at 1.0 where rewards is environment",
        )
        require(
            self.outcome == "success",
            "outcome",
            self.outcome,
            "left at 'success' where rewards is environment: no outcome is rewarded",
        )


def assign(tree: Tree, settings: PpoSettings) -> Credit:
    """Returns one StepCredit per row; raises DataError for a step without a value.

    parts: value (V(s_t)), return (A_t + V(s_t), the critic's target), penalty.
    """
    survey = survey_of(tree, settings)
    rewards = step_rewards(survey, settings.rewards)
    values = _values(survey)
    decays = settings.gamma, settings.gae_lambda
    rows = list(estimated_rows(survey, settings.prefix, rewards, values, *decays))

    def advantage(step: int, _: float, value: float, estimate: float) -> AdvantageParts:
        penalty = survey.penalties[step]
        # Adding 0.0 turns -0.0 into 0.0.
        advantage = estimate - penalty + 0.0
        parts = {
            "value": value,
            "return": value + advantage,
            "penalty": penalty,
        }
        return advantage, parts

    def facts(row: int, step: int, *_: float) -> Evidence:
        value, estimate, what = following(survey, settings.prefix, rows, row)
        evidence = Evidence()
        evidence.add("step_reward", rewards[step])
        words = f"the critic's value of the state after it: {what}"
        evidence.add("next_value", value, words)
        words = f"advantage of what follows, without penalties: {what}"
        evidence.add("next_advantage", estimate, words)
        return evidence

    return survey.credit("ppo", rows, advantage, facts=facts)


def _values(survey: Survey) -> list[float]:
    """V of every step; 0 for a masked step without one."""
    values = survey.given(
        "value",
        "ppo needs a critic's value on every step; sample with rollout --critic DIR",
    )
    for step, value in enumerate(values):
        # Written with `not <`, so that NaN is refused.
        if not abs(value) < LARGEST:
            raise DataError(
                f"task {shown(survey.tree.task.id)}: steps[{step}].value: {value} is "
                f"not below {LARGEST:g}"
            )
    return values


SCHULMAN = "Schulman et al. 2016, eq. "
EQUATIONS = (
    Equation("step_reward", None, "reward of the step (credit.rewards)"),
    Equation("value", None, "the critic's value of the state it leaves"),
    PENALTY,
    Equation(
        "delta",
        "step_reward + gamma * next_value - value",
        "one step ahead",
        SCHULMAN + "11",
    ),
    Equation(
        "estimate",
        "delta + gamma * gae_lambda * next_advantage",
        "generalised advantage",
        SCHULMAN + "16",
    ),
    Equation(ADVANTAGE, "estimate - penalty", "the penalty is charged to its own step"),
)
