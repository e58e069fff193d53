"""The switches that credit methods share.

A switch has one name and one meaning everywhere. A method's settings hold only the
switches that can matter for it: a class below, and fields of the method's own. The
registry refuses every other.
"""

import math
from typing import Literal

from agentcli.credit.states import StateForm
from agentcli.errors import UsageError
from agentcli.records.section import Section

LARGEST = 1e9
"""No setting and no reward is larger."""

Normalise = Literal["std", "mean"]


class Switches(Section, kw_only=True):
    """Switches of every method. Raises UsageError naming the field out of range."""

    success_reward: float = 1.0
    """Outcome reward R of a success, or of a score of 1; see `outcome`."""
    outcome: Literal["success", "score"] = "success"
    """What R is. success: success_reward for a success, else 0. score: success_reward
    times the sum of the world's own rewards over the trajectory, however it ended (F1,
    or a score in [0, 1]); nothing is clipped.
    """
    invalid_penalty: float = 0.1
    """Taken from a malformed or inadmissible step's own score, inside the baseline
    where the method has one (unless `penalty` is outside).
    """

    def __post_init__(self) -> None:
        in_range(self, "success_reward", positive=True)
        in_range(self, "invalid_penalty")


class PenaltySwitches(Switches, kw_only=True):
    """Switches of methods that compare scores within a group.

    A penalty can stand before or after the comparison.
    """

    penalty: Literal["inside", "outside"] = "inside"
    """inside: invalid_penalty lowers the score before it is normalised (the releases).
    A group of equal outcomes then has the penalties for its only spread, and one
    invalid step of many gets an advantage of several stds. outside: scores are
    normalised without it, and the advantage of an invalid step is lowered by
    invalid_penalty itself, once: no penalty costs more.
    """


class NormalisedSwitches(PenaltySwitches, kw_only=True):
    """Switches of methods with one form that normalise scores within a group."""

    normalise: Normalise = "std"
    """std: (x - mean) / (std + 1e-6), ddof 1. mean: x - mean."""


class RowSwitches(PenaltySwitches, kw_only=True):
    """Switches of methods whose authors' code is another algorithm than their paper.

    `over` and `prefix` follow `form` unless they are set.
    """

    form: Literal["paper", "release"] = "paper"
    """paper: the paper's definition. release: what the authors' code computes."""
    over: Literal["trajectories", "steps"] | None = None
    """Whether every trajectory counts once (paper) or every step row (release: long
    trajectories weigh more).
    """
    prefix: Literal["merge", "duplicate"] | None = None
    """A step shared by several leaves: one row with the mean over its leaves (paper) or
    one row per leaf (release).
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        release = self.form == "release"
        require(
            not release or self.penalty == "inside",
            "penalty",
            self.penalty,
            "'inside' where form is release",
        )
        self.over = self.over or ("steps" if release else "trajectories")
        self.prefix = self.prefix or ("duplicate" if release else "merge")


class GroupSwitches(RowSwitches, kw_only=True):
    """Switches of methods that normalise the outcomes of a group."""

    normalise: Normalise = "std"
    """std: (x - mean) / (std + 1e-6), ddof 1. mean: x - mean."""


class StateSwitches(GroupSwitches, kw_only=True):
    """Switches of methods that also compare the steps which leave one state."""

    state: StateForm = "paper"
    """What a state is: f(s) of 002 B.1 (paper), the true state (exact), or the text
    that was read (observation).
    """
    similarity: str = "exact"
    """Which states are one: only equal texts (exact), whatever `state` takes for one,
    or clusters of similar texts: difflib:THRESHOLD, embedding:THRESHOLD with THRESHOLD
    in (0, 1] (similarity.py; 002 App. B.1, C.4).
    """
    embedding_model: str | None = None
    """Directory of the sentence-embedding model of similarity embedding:THRESHOLD."""

    def __post_init__(self) -> None:
        super().__post_init__()
        kind, threshold = parse_similarity(self.similarity)
        if kind == "exact":
            known = threshold is None
        else:
            clustered = kind in ("difflib", "embedding")
            known = clustered and threshold is not None and 0 < threshold <= 1
        require(known, "similarity", self.similarity, SIMILARITIES)
        needs_model = kind == "embedding"
        wanted = f"unset where similarity is {kind}"
        if needs_model:
            wanted = (
                "the directory of a sentence-embedding model (--set "
                "credit.embedding_model=DIR)"
            )
        has_model = self.embedding_model is not None
        require(
            has_model == needs_model, "embedding_model", self.embedding_model, wanted
        )


SIMILARITIES = (
    "exact, difflib:THRESHOLD or embedding:THRESHOLD with a threshold above 0 and at "
    "most 1"
)


def parse_similarity(text: str) -> tuple[str, float | None]:
    """The kind and the threshold: "difflib:0.9" -> ("difflib", 0.9).

    A threshold that is not a number becomes NaN, which is in no range.
    """
    kind, colon, threshold = text.partition(":")
    if not colon:
        return kind, None
    try:
        return kind, float(threshold)
    except ValueError:
        return kind, math.nan


def require(
    holds: bool,
    field: str,
    value: object,
    wanted: str,
) -> None:
    """Raise UsageError that names the field, unless `holds`."""
    if not holds:
        raise UsageError(f"{field}: must be {wanted}, is {value!r}")


def in_range(
    settings: Section, *fields: str, positive: bool = False, most: float = LARGEST
) -> None:
    """Require numbers above 0 (`positive`) or at least 0, and at most `most`."""
    bound = "above 0" if positive else "at least 0"
    for field in fields:
        value = getattr(settings, field)
        high_enough = value > 0 if positive else value >= 0
        wanted = f"a number {bound} and at most {most:g}"
        require(high_enough and value <= most, field, value, wanted)
