"""A study as a file: arms that differ in named settings, from one start, over seeds.

`agentcli study` plays it; study.json holds what came out (StudyResults).
"""

from typing import Annotated, Any

from msgspec import Meta, field

from agentcli.errors import UsageError
from agentcli.records.section import Count, Section
from agentcli.records.types import SCHEMA_VERSION, Record

LARGEST_SEED = 2**31 - 1
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,60}$")]
"""A name of an arm or a panel; it becomes the name of a folder or a file."""


class PanelChoice(Section, kw_only=True):
    """An evaluation that the start and every arm get."""

    split: str
    samples: Count = 3
    """Episodes of each task."""
    temperature: Annotated[float, Meta(ge=0, le=10)] = 1.0


class PaperResult(Section, kw_only=True):
    """What the paper reports, in points of success."""

    paper: str
    """Which paper, e.g. "RewardFlow"."""
    table: str
    """Which table or figure."""
    arm: str
    """The arm that the paper's claim is about."""
    gain: float
    """Its gain over the reference."""


class StartChoice(Section, kw_only=True):
    """The policy that all arms of a seed start from."""

    model: str | None = None
    """A checkpoint. None: demonstrations are sampled and imitated, anew for each seed.
    """
    demos: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    """Settings in which each set of demonstrations differs from the study's."""


class Study(Section, kw_only=True):
    """One study."""

    title: str
    regime: str = ""
    """Why this is a fair place for the claim."""
    result: PaperResult | None = None
    """None: it reproduces no paper's figure."""
    preset: str
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of all stages and arms, over the preset's."""
    start: StartChoice = field(default_factory=StartChoice)
    arms: dict[Name, dict[str, Any]]
    """Name -> the settings in which the arm differs."""
    reference: str
    """The arm that the others are compared with."""
    seeds: str = "0-7"
    """For instance 0-7, or 0,3,5."""
    panels: dict[Name, PanelChoice]
    """Label -> evaluation. The first one decides."""

    def __post_init__(self) -> None:
        """Raises ValueError for names that are not there."""
        if self.reference not in self.arms:
            raise ValueError(f"reference: there is no arm {self.reference}")
        if self.result is not None and self.result.arm not in self.arms:
            raise ValueError(f"result.arm: there is no arm {self.result.arm}")
        if not self.panels:
            raise ValueError("panels: needs one at least")
        if "start" in self.arms:
            raise ValueError("arms: `start` is the name of the start's folder")


def seeds_of(text: str, place: str) -> list[int]:
    """The seeds that "0-7" or "0,3,5" names, each once. Raises UsageError."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = (first, last if dash else first)
        if not all(end.isdecimal() and int(end) <= LARGEST_SEED for end in ends):
            raise UsageError(
                f"{place}: {part.strip()!r} is no seed; write 0-7 or 0,3,5"
            )
        low, high = map(int, ends)
        if high < low or high - low >= 1000:
            raise UsageError(f"{place}: {part.strip()} names no seeds, or over 1,000")
        seeds += [seed for seed in range(low, high + 1) if seed not in seeds]
    return seeds


class ArmOutcome(Record, kw_only=True):
    """One arm of one seed. Rates are shares from 0 to 1."""

    arm: str
    seed: int
    panels: dict[str, float]
    """Success by the label of the panel."""
    course: list[float] = field(default_factory=list)
    """Success of the trajectories from scratch in each iteration; empty at the start.
    """
    totals: dict[str, float] = field(default_factory=dict)
    """Sums over the loop: steps, generated_tokens, leaves, updates, seconds."""


class SeedDifference(Record, kw_only=True):
    """An arm beside the reference, over seeds, in points."""

    measure: str
    """The label of a panel, or `area`: the mean success over the loop."""
    arm: str
    seeds: list[int]
    reference_mean: float
    mean: float
    gain: float
    low: float | None
    high: float | None
    """The 95 % interval of the gain (paired t); None for a single seed."""
    p: float
    """Exact signed-rank test over seeds."""


class StudyResults(Record, kw_only=True):
    """The whole study.json."""

    schema_version: int = SCHEMA_VERSION
    study: dict[str, Any]
    """The study's file as it was played."""
    outcomes: list[ArmOutcome]
    differences: list[SeedDifference]
    verdict: str | None = None
    """holds, does not, or cannot tell; None without a paper's figure."""
    unlike: list[str] = field(default_factory=list)
    """What the arms did not spend alike, in words."""
