"""rare-tool: rewards a step by the verdict of a judge (SPaRK, here Rare-tool, section 3.3).

    R_t = rho (best - chosen) + (1 - rho) process_ok

`chosen` is the judge's score of the action that was run and `best` its highest score,
both divided by `score_scale`. process_ok is 1 where the judge found the step reasonable,
else 0. R_t is both the advantage and the part `return`, from which the objective
offline-ppo subtracts its critic's V(s_t).

Two things differ from the printed equation. It has a minus before the second term, which
would punish reasonable steps and contradict the sentence above it ("convex", and
process_ok is there for the model not "performing too poorly"); `process_sign: minus`
takes that sign. And its scores lie between 0 and 10: `score_scale: 1` takes them so. With
10, the default, R_t lies in [0, 1], and rho weighs two terms of one size.
"""

from typing import Literal

from agentcli.credit.equations import ADVANTAGE, Equation
from agentcli.credit.survey import AdvantageParts, survey_of
from agentcli.credit.switches import Switches
from agentcli.errors import DataError
from agentcli.records.faults import shown
from agentcli.records.section import Positive, Section, Share
from agentcli.records.types import Credit, Step, Tree, Validity

VERDICT = frozenset({"best", "chosen", "process_ok"})
"""What a judge leaves in Step.notes, as far as the reward reads it."""
UNREADABLE = "no call could be read in the response, so no judge was asked"
UNSOUND = "the judge found the step unreasonable"
WRONG = "no success came of it"


class RareToolSettings(Section, kw_only=True):
    """Settings of rare-tool: the weights of the reward, and steps to leave out."""

    rho: Share = 0.5
    """Weight of exploration (best - chosen) against soundness (process_ok); Rare-tool
    gives no value.
    """
    score_scale: Positive = 10.0
    """Scores, from 0 to 10, are divided by this. 1: Rare-tool's equation as it is printed."""
    process_sign: Literal["plus", "minus"] = "plus"
    """Sign of process_ok. plus: it is rewarded, as Rare-tool says in words. minus: it
    is punished, as Rare-tool's equation is printed.
    """
    drop_unsound: bool = False
    """Leave out steps that the judge found unreasonable (Rare-tool section 4.1)."""
    drop_wrong: bool = False
    """Leave out steps that led to no success (Rare-tool section 4.1)."""


def assign(tree: Tree, settings: RareToolSettings) -> Credit:
    """Returns one StepCredit per step.

    parts: best, chosen, process_ok, sign (-1 with process_sign minus), return. Raises
    DataError for a tree without a judge's scores.
    """
    survey = survey_of(tree, Switches())
    sign = -1.0 if settings.process_sign == "minus" else 1.0
    for step in tree.steps:
        if survey.masked[step.id] is None:
            survey.masked[step.id] = _reason(tree, step, survey.won, settings)

    def advantage(number: int) -> AdvantageParts:
        step = tree.steps[number]
        parts = {
            "best": _note(tree, step, "best") / settings.score_scale,
            "chosen": _note(tree, step, "chosen") / settings.score_scale,
            "process_ok": _note(tree, step, "process_ok"),
            # A part, because process_sign is a word and formulas know numbers only.
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
    """Why a step is left out; None if it is not."""
    # Where rare-tool sampled, a step without any of these notes was never judged; a
    # parser may have left others. In other trees missing notes are an error, which
    # `_note` raises.
    unjudged = tree.method == "rare-tool" and VERDICT.isdisjoint(step.notes)
    if step.validity is Validity.MALFORMED or unjudged:
        return UNREADABLE
    if settings.drop_unsound and step.notes.get("process_ok") == 0:
        return UNSOUND
    if settings.drop_wrong and not won[step.id]:
        return WRONG
    return None


def _note(tree: Tree, step: Step, name: str) -> float:
    """A number from Step.notes; raises DataError where there is none."""
    value = step.notes.get(name)
    if value is not None and not isinstance(value, str):
        return float(value)
    raise DataError(
        f"task {shown(tree.task.id)}: steps[{step.id}].notes.{name}: "
        f"{'is no number' if name in step.notes else 'there is none'}; sample the trees "
        "with: agentcli rollout --method rare-tool"
    )


EQUATIONS = (
    Equation("best", None, "the judge's highest score, over score_scale"),
    Equation("chosen", None, "its score of the action that was run, likewise"),
    Equation("process_ok", None, "1 where the judge found the step reasonable"),
    Equation(
        "exploration", "rho * (best - chosen)", "how much was given up", "Rare-tool 3.3"
    ),
    Equation("soundness", "sign * (1 - rho) * process_ok", "whether it made sense"),
    Equation(
        "return_", "exploration + soundness", "reward of the step", "Rare-tool 3.3"
    ),
    Equation(ADVANTAGE, "return_", "the reward; a critic's value is taken in training"),
)
