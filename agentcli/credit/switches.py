"""The switches that credit methods share.

A switch has one name and one meaning everywhere. A method's settings extend one of the
classes below with the method's own fields, so that they have only the switches that can
matter for it. The registry refuses any other switch. rare-tool, which does not reward
outcomes, has none of these.
"""

import math
from typing import Literal

from agentcli.credit.states import StateForm
from agentcli.errors import UsageError
from agentcli.records.section import Section

LARGEST = 1e9
"""The largest setting or reward that is accepted."""

Normalise = Literal["std", "mean"]


class Switches(Section, kw_only=True):
    """Switches of every method that rewards outcomes.

    Raises UsageError that names a field out of range.
    """

    success_reward: float = 1.0
    """Outcome reward R of a success, or per unit of score; see `outcome`."""
    outcome: Literal["success", "score"] = "success"
    """What the outcome reward R is. success: success_reward for a success, else 0.
    score: success_reward times the sum of the world's own rewards over the trajectory
    (F1, or a score in [0, 1]), however it ended and without clipping.
    """
    invalid_penalty: float = 0.1
    """Subtracted from the score of a malformed or inadmissible step. Methods that
    compare scores within a group subtract it before comparing, unless `penalty` is
    outside.
    """

    def __post_init__(self) -> None:
        # With 0 all outcomes would be equal, and teach nothing.
        in_range(self, "success_reward", positive=True)
        in_range(self, "invalid_penalty")


class PenaltySwitches(Switches, kw_only=True):
    """Switches of methods that compare scores within a group.

    A penalty can be charged before or after the comparison.
    """

    penalty: Literal["inside", "outside"] = "inside"
    """inside: invalid_penalty lowers the score before it is normalised (as in the
    releases). In a group of equal outcomes the penalties are then the only spread, and
    a single invalid step gets an advantage of several stds. outside: scores are
    normalised without it, and the advantage of an invalid step is lowered by exactly
    invalid_penalty.
    """


class NormalisedSwitches(PenaltySwitches, kw_only=True):
    """Switches of methods that have one form and normalise scores within a group."""

    normalise: Normalise = "std"
    """std: (x - mean) / (std + 1e-6), ddof 1. mean: x - mean."""


class RowSwitches(PenaltySwitches, kw_only=True):
    """Switches of methods whose released code differs from their paper.

    `over` and `prefix` follow `form` unless they are set.
    """

    form: Literal["paper", "release"] = "paper"
    """paper: the paper's definition. release: what the authors' code computes."""
    over: Literal["trajectories", "steps"] | None = None
    """What counts once in the group: every trajectory (paper), or every step row
    (release; long trajectories then weigh more).
    """
    prefix: Literal["merge", "duplicate"] | None = None
    """A step shared by several leaves: one row with the mean over its leaves (paper) or
    one row per leaf (release).
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        release = self.form == "release"
        # The authors' code has no other way, and release is there to match it.
        require(
            not release or self.penalty == "inside",
            "penalty",
            self.penalty,
            "'inside' where form is release",
        )
        # Filled in here, so that the manifest names what was used.
        self.over = self.over or ("steps" if release else "trajectories")
        self.prefix = self.prefix or ("duplicate" if release else "merge")


class GroupSwitches(RowSwitches, kw_only=True):
    """Switches of methods that normalise the outcomes of a group."""

    normalise: Normalise = "std"
    """std: (x - mean) / (std + 1e-6), ddof 1. mean: x - mean."""


class StateSwitches(GroupSwitches, kw_only=True):
    """Switches of methods that also compare the steps taken from the same state."""

    state: StateForm = "paper"
    """What identifies a state: f(s) of RewardFlow B.1 (paper), the true state (exact),
    or the text that the agent read (observation).
    """
    similarity: str = "exact"
    """Which states count as the same. exact: those with equal texts, as chosen by
    `state`. difflib:THRESHOLD or embedding:THRESHOLD: clusters of similar texts, with
    THRESHOLD in (0, 1] (similarity.py; RewardFlow App. B.1, C.4).
    """
    embedding_model: str | None = None
    """Directory of the sentence-embedding model for similarity embedding:THRESHOLD."""

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

    A threshold that is not a number becomes NaN, which every range check refuses.
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
    """Raises UsageError that names the field, unless `holds`."""
    if not holds:
        raise UsageError(f"{field}: must be {wanted}, is {value!r}")


def in_range(
    settings: Section, *fields: str, positive: bool = False, most: float = LARGEST
) -> None:
    """Requires numbers above 0 (`positive`) or at least 0, and at most `most`."""
    bound = "above 0" if positive else "at least 0"
    for field in fields:
        value = getattr(settings, field)
        # NaN fails either comparison, and so is refused.
        high_enough = value > 0 if positive else value >= 0
        wanted = f"a number {bound} and at most {most:g}"
        require(high_enough and value <= most, field, value, wanted)
