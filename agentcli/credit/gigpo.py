"""gigpo: grpo, plus how a step's discounted return compares with those of the other steps from the same state (Feng et al. 2025,
"Group-in-Group Policy Optimization", section 4; release langfengQ/verl-agent).

    A = A_traj + w * A_step
    R_t = r_t + gamma R_t+1        A_step = (R_t - p [invalid] - mean) / F over all steps of the tree that leave the same state

A_traj is grpo's (group.outcome_scale). F is the std plus 1e-6 or 1 (`scale`); a step alone in its state gets 0. A shared step's
return is the mean over its leaves and it is one member of its group; with `prefix: duplicate` every leaf's row is one.
The penalty is charged to its own step, after discounting. States are as `state` says (states.py), or clusters of similar ones
(similarity.py).
`form: release` is the same arithmetic over step rows with prefixes repeated.
"""

from collections.abc import Hashable
from typing import Literal

from agentcli.credit.account import Sheet
from agentcli.credit.common import StateSwitches, in_range, unassigned
from agentcli.credit.group import SMALLEST_STD, Scale, Survey, scale_for, scales_within, survey
from agentcli.credit.returns import Rewards, estimated_rows, step_rewards
from agentcli.credit.similarity import require_states, state_keys
from agentcli.credit.terms import alike, among_leaves, charge, end_line, following, told
from agentcli.records.types import Credit, Tree

WITHOUT = {"distance": "it knows no graph", "pruning": "it groups every step by its state"}


class GigpoSettings(StateSwitches, kw_only=True):
    """Defaults of the paper. Raises UsageError naming the field."""

    gamma: float = 0.95
    """Discount per step, in (0, 1]."""
    w: float = 1.0
    """Weight of A_step."""
    scale: Literal["std", "none"] | None = None
    """F of A_step. Unset: as `normalise` divides."""
    rewards: Rewards = "outcome"
    """r_t of A_step. outcome: the outcome reward (`outcome`) on the last step. environment: the world's own reward of every step;
    A_traj still compares outcome rewards."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.scale = self.scale or ("std" if self.normalise == "std" else "none")
        in_range(self, "gamma", above=0, most=1)
        in_range(self, "w", least=0)


def assign(tree: Tree, settings: GigpoSettings) -> Credit:
    """One StepCredit per row. parts: trajectory and step (the summands, w included), return (R_t), group (the mean that is taken
    from the step's score). Raises DataError for a tree without state keys."""
    seen = survey(tree, settings)
    require_states(tree, seen, "gigpo")
    keys = state_keys(tree, settings)
    trajectory_scale = scale_for(seen, settings, settings.normalise)
    rows = _rows(tree, seen, settings)
    scales = _scales(rows, keys, seen, settings)
    credits = []
    for step, reward, value, advantage in rows:
        reason = seen.masked[step]
        if reason is not None:
            credits.append(unassigned(step, reason))
            continue
        penalty, scale = seen.penalties[step], scales[keys[step]]
        trajectory = trajectory_scale(reward - penalty)
        action = settings.w * scale(value + advantage - penalty)
        parts = {"trajectory": trajectory, "step": action, "return": value + advantage, "group": scale.center}
        credits.append(seen.credited(step, trajectory + action, parts))
    return Credit(task=tree.task.id, method="gigpo", steps=credits)


Row = tuple[int, float, float, float]
"""As returns.estimated_rows yields it: the return is the sum of its last two."""


def _rows(tree: Tree, seen: Survey, settings: GigpoSettings) -> list[Row]:
    rewards = step_rewards(tree, seen, settings.rewards)
    return list(estimated_rows(seen, settings.prefix, rewards, [0.0] * len(rewards), settings.gamma, 1.0))


def _scales(rows: list[Row], keys: list[str], seen: Survey, settings: GigpoSettings) -> dict[Hashable, Scale]:
    """How returns compare, by state."""
    plain_difference = settings.form == "release" and settings.scale == "none"
    return scales_within(
        [keys[row[0]] for row in rows],
        [row[2] + row[3] - seen.penalties[row[0]] for row in rows],
        [float(seen.masked[row[0]] is None) for row in rows],
        "std" if settings.scale == "std" else "mean",
        0.0 if plain_difference else SMALLEST_STD,
    )


def explain(tree: Tree, settings: GigpoSettings, row: int) -> Sheet:
    """The account of one row."""
    sheet, seen = Sheet(), survey(tree, settings)
    keys, about, rows = state_keys(tree, settings), told(seen, settings.prefix, row), _rows(tree, seen, settings)
    outcomes = scale_for(seen, settings, settings.normalise)
    among_leaves(sheet, tree, seen, about, settings, outcomes, settings.normalise)
    value, advantage, what = following(tree, seen, settings.prefix, rows, row)
    step, paper = about.step, "Feng et al. 2025, section 4"
    sheet.given("r", step_rewards(tree, seen, settings.rewards)[step], f"reward of the step ({settings.rewards})")
    sheet.given("gamma", settings.gamma, "setting")
    sheet.given("return_next", value + advantage, f"return of what follows: {what}")
    sheet.line("G", "r + gamma * return_next", "discounted return", paper)
    sheet.line("y", "G - p", "score of the step")
    scored = [(n, v + a - seen.penalties[n], 1.0) for n, _, v, a in rows]
    what = "scores G - p of the steps that leave the same state"
    state = alike(sheet, "state", what, seen, scored, [keys[n] for n, *_ in rows], row)
    sheet.given("w", settings.w, "setting")
    scale, how = _scales(rows, keys, seen, settings)[keys[step]], "std" if settings.scale == "std" else "mean"
    sheet.compare("compared", "y", state, scale, how, "how its return compares with theirs", paper)
    sheet.line("step", "w * compared", "its part of the advantage")
    sheet.line(end_line(seen), "trajectory + step", "both parts", paper)
    return charge(sheet, seen, step)
