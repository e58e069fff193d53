"""A study as a file: arms that differ in named settings, from one start, over seeds.

`agentcli study` plays it; study.json holds what came out (StudyResults).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, field

from agentcli.errors import UsageError
from agentcli.records.section import Count, CountFromZero, Section, value_at
from agentcli.records.types import SCHEMA_VERSION, Record

LARGEST_SEED = 2**31 - 1
SEED = re.compile("[0-9]{1,10}")
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,60}$(?!\n)")]
"""A name of an arm or a panel; it becomes the name of a folder or a file."""
Summarised = Literal[
    "success",
    "score",
    "steps",
    "moves",
    "tokens",
    "repetitive",
    "explore",
    "malformed",
    "inadmissible",
]
"""What a panel's summary says (agentcli.evaluation.record.Results)."""
TreeMeasured = Literal[
    "invalid_states",
    "unique_states",
    "unique_actions",
    "diversity",
    "actions",
    "actions_std",
    "nodes",
    "edges",
    "entropy",
    "call_entropy",
]
"""What its trees show (agentcli.analysis.tree_measures)."""
Measured = Literal[Summarised, TreeMeasured, "tokens_per_step"]
"""What is measured on a panel."""
TrainingMeasured = Literal[
    "explore",
    "repetitive",
    "malformed",
    "inadmissible",
    "entropy",
]
"""What each iteration of a loop shows: of its trajectories, as of a panel's. entropy is
that of the trajectories from scratch, in nats a token: methods train on unlike tokens.
"""
StepMeasured = Literal["actions", "call_entropy"]
"""What each step of a panel's trajectories shows."""
BY_STEP = "-by-step"
"""What the names of its pictures end in."""
CONTROL = "line ends and control characters"
DROP = "drop"
"""Measure of a panel with `drop_from`."""
TRAINING_TOKENS = "training_tokens"
"""Measure of the loops: tokens that training generated, in % of the reference's."""
LOOP = "loop"
"""The panel of what the training's own trajectories show."""
Figured = Literal[
    Measured,
    "drop",
    "training_tokens",
    "pass@1",
    "pass@2",
    "pass@4",
    "pass@8",
    "pass@16",
    "pass@32",
]
"""What a paper's figure may be of; pass@k of a panel by pass-at-k."""
Figure = Annotated[float, Meta(ge=-1e9, le=1e9)]
COUNTED = frozenset(
    {
        *("steps", "moves", "tokens", "tokens_per_step"),
        *("actions", "actions_std", "nodes", "edges", "entropy", "call_entropy"),
    }
)
"""Measures that are no shares."""


def scale_of(measure: str, values: Iterable[float] = ()) -> int:
    """What a value is multiplied with to be shown: shares are in percent.

    A score above 1 is no share: a world such as ScienceWorld rewards in points.
    """
    in_points = measure == "score" and any(abs(value) > 1 for value in values)
    counted = measure in COUNTED or " to +" in measure
    return 1 if in_points or counted else 100


Spent = Literal["steps", "tokens", "trajectories", "responses", "updates"]
"""What a loop spends: environment steps, generated tokens, trajectories that ended,
responses that were trained on, updates of the optimiser.
"""
PASSES = tuple(name for name in get_args(Figured) if name.startswith("pass@"))
START = "start"
"""Key of an arm that names its start."""
PLAYED = ("split", "samples", "n", "temperature", "label")
"""Settings of evaluations that a panel has as its own, whatever they say."""
DEMOS = "demos"
"""The folder of demonstrations; further ones are demos-2, demos-3, ..."""


class PanelChoice(Section, kw_only=True):
    """An evaluation that every start and every arm gets."""

    by: Literal["eval", "pass-at-k", "test-time-branch"] = "eval"
    """The command that plays it."""
    split: str
    samples: Count = 3
    """Episodes of each task; n of pass-at-k."""
    temperature: Annotated[float, Meta(ge=0, le=10)] = 1.0
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings in which the evaluation differs from the arm's."""
    drop_from: Name | None = None
    """Label of another panel. The measure `drop` is the share of the success there that
    is lost here (SPARK Table 3).
    """


class PaperResult(Section, kw_only=True):
    """What a paper reports of some arms on one panel."""

    paper: str
    """Which paper, e.g. "RewardFlow"."""
    table: str
    """Which table or figure."""
    figures: dict[str, Figure]
    """Arm -> the paper's figure, in percent or in the measure's unit."""
    panel: str | None = None
    """Label of the panel, the first one without it; loop for training_tokens."""
    measure: Figured = "success"


class StartChoice(Section, kw_only=True):
    """A policy that arms start from.

    It imitates demonstrations, anew for each seed; with a model, from that model on. A
    model without demonstrations is taken as it is.
    """

    model: str | None = None
    demos: list[dict[str, Any]] | None = None
    """Settings in which each set of demonstrations differs; one like the study's if
    neither these nor a model are named.
    """
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings in which the imitation differs from the study's."""

    def __post_init__(self) -> None:
        """Raises ValueError where nothing is imitated and nothing is taken."""
        if self.demonstrations:
            return
        if not self.model:
            raise ValueError("demos: needs one at least, or a model")
        if self.settings:
            raise ValueError("settings: nothing is imitated here; add demos")

    @property
    def demonstrations(self) -> list[dict[str, Any]]:
        """The settings of each set; none where the model is taken as it is."""
        if self.demos is None:
            return [] if self.model else [{}]
        return self.demos


class SearchChoice(Section, kw_only=True):
    """One setting that is searched for every arm, on a seed that is not counted."""

    path: str = "train.learning_rate"
    values: list[Annotated[int, Meta(ge=-(10**9), le=10**9)] | Figure]
    seed: CountFromZero

    def __post_init__(self) -> None:
        """Raises ValueError where there is nothing to choose from."""
        if len({f"{value:g}" for value in self.values}) < max(2, len(self.values)):
            raise ValueError("values: needs two at least, unlike in six digits")
        if self.path.partition(".")[0] == START:
            raise ValueError("path: a start is no setting")


class PartCost(Section, kw_only=True):
    """What a part of a study took where it was measured."""

    seconds: Annotated[float, Meta(ge=0, le=1e9)]
    megabytes: Annotated[float, Meta(ge=0, le=1e9)]


def check_lines(texts: Mapping[str, str]) -> None:
    """Raises ValueError for a text, by its key, that could not be shown on one line."""
    for key, text in texts.items():
        if not text.isprintable():
            raise ValueError(f"{key}: is shown on one line; leave out {CONTROL}")


class Study(Section, kw_only=True):
    """One study."""

    title: str
    regime: str = ""
    """Why this is a fair place for the claim."""
    results: list[PaperResult] = field(default_factory=list)
    """What is reproduced; none if it is no paper's figure."""
    preset: str
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of all stages and arms, over the preset's."""
    starts: dict[Name, StartChoice] = field(
        default_factory=lambda: {"start": StartChoice()}
    )
    """The first one is that of every arm that names none."""
    arms: dict[Name, dict[str, Any]]
    """Name -> the settings in which the arm differs, and `start`: a start's name."""
    reference: str
    """The arm that the others are compared with."""
    equal: list[Spent] = field(default_factory=list)
    """What the arms must have spent alike; the report says whether they did."""
    search: SearchChoice | None = None
    """None: every arm has the settings of the file."""
    seeds: int | str = "0-7"
    """For instance 0-7, or 0,3,5."""
    measures: list[Measured] = field(default_factory=lambda: ["success"])
    """What is compared on every panel."""
    training: list[TrainingMeasured] = field(default_factory=list)
    """What is followed over the iterations of every loop, and compared in their mean."""
    by_step: list[StepMeasured] = field(default_factory=list)
    """What is drawn over the steps of the trajectories of the first panel."""
    panels: dict[Name, PanelChoice]
    """Label -> evaluation. The first one decides."""

    took: dict[Name, PartCost] = field(default_factory=dict)
    """Name of an arm or a start -> its cost, for the estimate before any part ended.
    Where the study was played before, its folder has this as took.yaml.
    """
    yardstick: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    """Milliseconds of a fixed piece of work where `took` was measured, from took.yaml.
    The estimate measures the same work here, and takes so much more or less.
    """
    gpu_hours: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    """Hours of one H100 for a seed of all loops, where nothing was played: by the
    arithmetic of scripts/estimate_presets.py, not measured.
    """

    def __post_init__(self) -> None:
        """Raises ValueError for names that are not there."""
        texts = {"title": self.title}
        for place, result in enumerate(self.results):
            texts[f"results[{place}].paper"] = result.paper
            texts[f"results[{place}].table"] = result.table
        check_lines(texts)
        for name in ("arms", "panels", "starts"):
            if not getattr(self, name):
                raise ValueError(f"{name}: needs one at least")
        if self.reference not in self.arms:
            raise ValueError(f"reference: there is no arm {self.reference}")
        for section, names in (("arms", self.arms), ("starts", self.starts)):
            for name in names:
                if name.partition("-")[0] == DEMOS:
                    raise ValueError(
                        f"{section}.{name}: a folder of {DEMOS}; rename it"
                    )
        for arm in self.arms:
            if arm in self.starts:
                raise ValueError(f"arms: {arm} is the name of a start")
            if self.start_of(arm) not in self.starts:
                raise ValueError(f"arms.{arm}.start: no start {self.start_of(arm)}")
        for name in self.took:
            parts = (*self.arms, *self.starts)
            if name not in parts and name.partition("-")[0] != DEMOS:
                raise ValueError(f"took: there is no arm or start {name}")
        for place, result in enumerate(self.results):
            for arm in result.figures:
                if arm not in self.arms and arm not in self.starts:
                    raise ValueError(f"results[{place}].figures: there is no arm {arm}")
            fault = self._fault_of(result)
            if fault:
                raise ValueError(f"results[{place}].{fault}")
        if LOOP in self.panels:
            raise ValueError(
                f"panels.{LOOP}: means the training's trajectories; rename it"
            )
        for label, panel in self.panels.items():
            base = panel.drop_from
            if base is not None and (base == label or base not in self.panels):
                raise ValueError(f"panels.{label}.drop_from: no other panel {base}")
            if base is not None and "success" not in self.measures:
                raise ValueError(f"panels.{label}.drop_from: needs success measured")
        greedy = all(panel.temperature == 0 for panel in self.panels.values())
        if greedy and "entropy" in self.measures:
            raise ValueError("measures: entropy needs a panel that is not greedy")
        if self.search is not None and "success" not in self.measures:
            raise ValueError("search: it needs success among `measures`")

    def _fault_of(self, result: PaperResult) -> str:
        """What is wrong with a paper's figure; "" if nothing is."""
        label, measure = self.panel_of(result), result.measure
        if measure == TRAINING_TOKENS:
            return "" if label == LOOP else f"panel: {measure} is of the panel {LOOP}"
        if label not in self.panels:
            return f"panel: no panel {label}"
        if measure == DROP:
            has = self.panels[label].drop_from is not None
            return "" if has else f"measure: the panel {label} has no drop_from"
        if measure in PASSES:
            has = self.panels[label].by == "pass-at-k"
            return "" if has else f"measure: {measure} needs a panel by pass-at-k"
        has = measure in self.measures
        return "" if has else f"measure: {measure} is not in `measures`"

    def start_of(self, arm: str) -> str:
        """The name of the start of an arm."""
        return str(self.arms[arm].get(START, next(iter(self.starts))))

    def settings_of(self, arm: str) -> dict[str, Any]:
        """The settings in which an arm differs."""
        return {key: value for key, value in self.arms[arm].items() if key != START}

    def refuse_dropped_trees(self, kept: str, part: str, label: str) -> None:
        """Raises UsageError where measures would lack trees that an evaluation drops.

        kept: `evaluation.trees` of the arm or start `part` on the panel `label`.
        """
        lost: list[str] = [
            name for name in self.measures if name in get_args(TreeMeasured)
        ]
        if self.by_step and label == next(iter(self.panels)):
            lost.append("by_step")
        if lost and kept != "all":
            raise UsageError(
                f"{self._place_of('evaluation.trees', part, label)}: {kept} drops trees "
                f"in which {', '.join(lost)} of {label} would be measured; write "
                "evaluation.trees: all"
            )

    def refuse_replaced(self, part: str, label: str, loops: bool) -> None:
        """Raises UsageError for settings of an evaluation that its panel replaces.

        loops: whether loops are evaluated too, with settings that are no panel's.
        """
        of_evaluation = [f"evaluation.{name}" for name in PLAYED]
        for key in (*of_evaluation, "environment.split"):
            place = self._place_of(key, part, label)
            # Elsewhere, environment.split is the training's.
            unused = key in of_evaluation and place != key and not loops
            if place.startswith("panels.") or unused:
                raise UsageError(
                    f"{place}: panels.{label} has its own split, samples, temperature "
                    "and name; write it there"
                )

    def _place_of(self, key: str, part: str, label: str) -> str:
        """Where a setting of an evaluation stands; its name alone if in the preset."""
        places = {f"panels.{label}.settings": self.panels[label].settings}
        if part in self.arms:
            places[f"arms.{part}"] = self.arms[part]
        else:
            places[f"starts.{part}.settings"] = self.starts[part].settings
        places["settings"] = self.settings
        for place, values in places.items():
            if value_at(values, key) is not None:
                return f"{place}.{key}"
        return key

    def panel_of(self, result: PaperResult) -> str:
        """The panel of a paper's figure."""
        return result.panel or next(iter(self.panels))


def seeds_of(text: str, place: str) -> list[int]:
    """The seeds that "0-7" or "0,3,5" names, each once. Raises UsageError."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = (first, last if dash else first)
        if not all(SEED.fullmatch(end) and int(end) <= LARGEST_SEED for end in ends):
            raise UsageError(
                f"{place}: {part.strip()[:40]!r} is no seed; write 0-7 or 0,3,5"
            )
        low, high = map(int, ends)
        if high < low or high - low >= 1000:
            raise UsageError(f"{place}: {part.strip()} names no seeds, or over 1,000")
        seeds += [seed for seed in range(low, high + 1) if seed not in seeds]
    return seeds


class ArmOutcome(Record, kw_only=True):
    """One start or arm of one seed."""

    arm: str
    seed: int
    panels: dict[str, dict[str, float]]
    """Label -> measure -> mean. Shares are from 0 to 1."""
    course: list[float] = field(default_factory=list)
    """Success of the trajectories from scratch in each iteration; empty at the start.
    """
    steps: list[int] = field(default_factory=list)
    """Environment steps of each iteration."""
    responses: list[int] = field(default_factory=list)
    """Updated responses of each iteration; empty where that is not known."""
    courses: dict[str, list[float | None]] = field(default_factory=dict)
    """Measure of the training -> its value in each iteration. Shares are from 0 to 1.
    None where there is nothing to measure.
    """
    by_step: dict[str, list[float | None]] = field(default_factory=dict)
    """Measure -> its value at step 1, 2, ... of the trajectories of the first panel;
    None where there is nothing to measure.
    """
    totals: dict[Spent, float] = field(default_factory=dict)
    """Sums over the loop; what is not known is left out."""


class SeedDifference(Record, kw_only=True):
    """An arm beside the reference, over seeds. Shares are in points."""

    panel: str
    """Its label, or `loop`: the trajectories of the training itself."""
    measure: str
    """One of the panel's; of the loop `area`, the mean success over its iterations,
    `steps to +N`, until five iterations lie N points above the start, `responses to
    +N` likewise, where `equal` names them, or the mean of a measure of the training.
    """
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
    paper: str | None = None
    """Which paper has a figure for this gain."""
    paper_gain: float | None = None
    verdict: str | None = None
    """holds, does not, or cannot tell; None without a paper's figure."""
    in_points: bool = False
    """Whether it is a score in the world's own points."""

    @property
    def is_share(self) -> bool:
        """Whether the measure is in percent."""
        return not self.in_points and scale_of(self.measure) == 100


class StudyResults(Record, kw_only=True):
    """The whole study.json."""

    schema_version: int = SCHEMA_VERSION
    study: dict[str, Any]
    """The study's file as it was played."""
    outcomes: list[ArmOutcome]
    differences: list[SeedDifference]
    unlike: list[str] = field(default_factory=list)
    """What the arms did not spend alike, in words."""
    rules: list[str] = field(default_factory=list)
    """What was decided while it was played, in words: searched settings, added seeds.
    """
