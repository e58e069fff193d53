"""rare-tool: the reward of a step, from what a judge said about it (001 section 3.3).

    R_t = rho (best - chosen) + (1 - rho) process_ok

`chosen` is the judge's score of the action that was run, `best` that of the best one,
both divided by 10; process_ok is 1 where the judge found the step reasonable, else 0.
So R_t lies in [0, 1]. It is the advantage, and the part `return`: objective offline-ppo
takes its critic's V(s_t) from it.

The paper prints a minus before the second term. That would punish reasonable steps, and
contradicts the sentence above its equation ("convex", and process_ok keeps the policy
"from performing too poorly"). `process_sign: minus` computes what is printed.
"""

from typing import Literal

from agentcli.credit.equations import ADVANTAGE, Equation
from agentcli.credit.survey import AdvantageParts, survey_of
from agentcli.credit.switches import Switches
from agentcli.errors import DataError
from agentcli.records.faults import shown
from agentcli.records.section import Section, Share
from agentcli.records.types import Credit, Step, Tree, Validity

HIGHEST_SCORE = 10.0
"""Scores are divided by it."""
UNREADABLE = "no call could be read in the response, so no judge was asked"
UNSOUND = "the judge found the step unreasonable"
WRONG = "no success came of it"
WITHOUT = {"form": "which sign process_ok has is credit.process_sign"}
EQUATIONS = (
    Equation("best", None, "the judge's highest score, divided by 10"),
    Equation("chosen", None, "its score of the action that was run, divided by 10"),
    Equation("process_ok", None, "1 where the judge found the step reasonable"),
    Equation(
        "exploration", "rho * (best - chosen)", "how much was given up", "001 3.3"
    ),
    Equation("soundness", "sign * (1 - rho) * process_ok", "whether it made sense"),
    Equation("return_", "exploration + soundness", "reward of the step", "001 3.3"),
    Equation(ADVANTAGE, "return_", "the reward; a critic's value is taken in training"),
)


class RareToolSettings(Section, kw_only=True):
    """The balance of the reward, and which steps are left out."""

    rho: Share = 0.5
    """Weight of exploration against soundness; 001 names no value."""
    process_sign: Literal["plus", "minus"] = "plus"
    """Sign of process_ok. plus: it is rewarded, as 001 says in words. minus: it is
    punished, as 001's equation is printed.
    """
    drop_unsound: bool = False
    """Leave out the steps that the judge found unreasonable (001 section 4.1)."""
    drop_wrong: bool = False
    """Leave out the steps of which no success came (001 section 4.1)."""


def assign(tree: Tree, settings: RareToolSettings) -> Credit:
    """One StepCredit per step.

    parts: best, chosen, process_ok, sign (-1 with process_sign minus), return. Raises
    DataError for a tree that no judge saw.
    """
    survey = survey_of(tree, Switches())
    sign = -1.0 if settings.process_sign == "minus" else 1.0
    for step in tree.steps:
        if survey.masked[step.id] is None:
            survey.masked[step.id] = _reason(tree, step, survey.won, settings)

    def advantage(number: int) -> AdvantageParts:
        step = tree.steps[number]
        parts = {
            "best": _note(tree, step, "best") / HIGHEST_SCORE,
            "chosen": _note(tree, step, "chosen") / HIGHEST_SCORE,
            "process_ok": _note(tree, step, "process_ok"),
            "sign": sign,
        }
        exploration = settings.rho * (parts["best"] - parts["chosen"])
        soundness = sign * (1 - settings.rho) * parts["process_ok"]
        # Adding 0.0 turns -0.0 into 0.0.
        reward = exploration + soundness + 0.0
        parts["return"] = reward
        return reward, parts

    return survey.credit("rare-tool", [(step.id,) for step in tree.steps], advantage)


def _reason(
    tree: Tree, step: Step, won: list[int], settings: RareToolSettings
) -> str | None:
    """Why a step is left out; None where it is not."""
    unjudged = tree.method == "rare-tool" and not step.notes
    if step.validity is Validity.MALFORMED or unjudged:
        return UNREADABLE
    if settings.drop_unsound and step.notes.get("process_ok") == 0:
        return UNSOUND
    if settings.drop_wrong and not won[step.id]:
        return WRONG
    return None


def _note(tree: Tree, step: Step, name: str) -> float:
    """A number that the rollout noted. Raises DataError where there is none."""
    value = step.notes.get(name)
    if value is not None and not isinstance(value, str):
        return float(value)
    raise DataError(
        f"task {shown(tree.task.id)}: steps[{step.id}].notes.{name}: "
        f"{'is no number' if name in step.notes else 'there is none'}; sample the trees "
        "with: agentcli rollout --method rare-tool"
    )
