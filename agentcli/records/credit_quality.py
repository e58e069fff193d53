"""A study of credit in tunnels as a file, and its results.

The file says which tunnels there are, which methods credit them, and how many groups are
measured (Tunnels). credit-quality.json holds what came out (CreditQuality).
"""

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from agentcli.records.section import Count, CountFromZero, NotNegative, Section
from agentcli.records.study import Name, SeedDifference, check_lines
from agentcli.records.training_settings import Aggregate
from agentcli.records.types import SCHEMA_VERSION, Record


class TunnelChoice(Section, kw_only=True):
    """One tunnel, and what is set there for every method that has such a setting."""

    about: str = ""
    """The difficulty that it isolates."""
    options: dict[str, Any] = field(default_factory=dict)
    """Its knobs (environment.options)."""
    max_steps: Count = 50
    """Steps after which a game is lost."""
    credit: dict[str, Any] = field(default_factory=dict)
    rollout: dict[str, Any] = field(default_factory=dict)
    spread: NotNegative | None = None
    """None: the study's."""
    skill: NotNegative | None = None
    """None: the study's."""


class Knob(TunnelChoice, kw_only=True):
    """A tunnel with one setting that is turned: a tunnel KNOB-VALUE for each value."""

    values: Annotated[
        list[CountFromZero | NotNegative], Meta(min_length=2, max_length=20)
    ]
    """Values of the option of this name, or of `spread` or `skill`."""

    def __post_init__(self) -> None:
        """Raises ValueError for a value that stands twice, as 1 and 1.0 do."""
        if len({*self.values}) < len(self.values):
            raise ValueError("values: one stands twice")

    def settings(self, name: str) -> Iterator[tuple[str, TunnelChoice]]:
        """The tunnels by name, in the order of the values."""
        common = {key: getattr(self, key) for key in TunnelChoice.__struct_fields__}
        for value in self.values:
            if name in ("spread", "skill"):
                turned = {**common, name: float(value)}
            else:
                turned = {**common, "options": {**self.options, name: value}}
            yield f"{name}-{value}", TunnelChoice(**turned)


class MeasuredMethod(Section, kw_only=True):
    """One way to assign credit, with the trees that it is meant for."""

    credit: dict[str, Any] = field(default_factory=dict)
    """Its settings; `method` is the name of this entry unless it is set."""
    rollout: dict[str, Any] = field(default_factory=dict)
    """How its trees grow; `method` is chain unless it is set."""
    aggregate: Aggregate | None = None
    """How a training averages over its rows. None: as the credit method's paper does.
    """

    def __post_init__(self) -> None:
        """Raises ValueError for a method that is no name."""
        for section, values in (("credit", self.credit), ("rollout", self.rollout)):
            if not isinstance(values.get("method", ""), str):
                raise ValueError(f"{section}.method: must be a name")


class Tunnels(Section, kw_only=True):
    """One study of credit in tunnels."""

    title: str
    about: str = ""
    """What it is to show."""
    groups: Annotated[int, Meta(ge=4, le=1_000_000)] = 480
    """Trees of each method in each tunnel and seed."""
    update: Annotated[int, Meta(ge=1, le=10_000)] = 16
    """Groups of one update, whose direction is compared with the gradient's."""
    spread: NotNegative = 0.5
    """Standard deviation of the policy's logits. 0: every action is equally likely,
    but for `skill`.
    """
    skill: NotNegative = 0.5
    """How far the logits lean towards what pays: at each view by so much times the
    gradient of the policy without a preference, divided by its largest entry.
    """
    seeds: int | str = "0"
    """For instance 0-7. Each seed is another policy, with trees of its own."""
    rollout: dict[str, Any] = field(default_factory=dict)
    """Settings of every exploration method that has them."""
    tunnels: dict[Name, TunnelChoice] = field(default_factory=dict)
    knobs: dict[Name, Knob] = field(default_factory=dict)
    """Tunnels in which one setting is turned, to see where a method gains on another.
    """
    equal: Literal["steps", "responses"] = "steps"
    """What updates have alike, for the comparison over the settings of a knob. steps:
    environment steps. responses: those that are updated, whose advantage is not 0.
    """
    budget: Count = 512
    """How many of them an update has."""
    methods: dict[Name, MeasuredMethod]
    """Over the settings of a knob, the first is what the others are compared with."""

    def __post_init__(self) -> None:
        """Raises ValueError where nothing would be measured, or shown."""
        tunnels = {f"tunnels.{name}.about": one for name, one in self.tunnels.items()}
        knobs = {f"knobs.{name}.about": one for name, one in self.knobs.items()}
        about = {key: one.about for key, one in (tunnels | knobs).items()}
        check_lines({"title": self.title} | about)
        if not (self.tunnels or self.knobs):
            raise ValueError("tunnels: needs one at least, or a knob")
        if not self.methods:
            raise ValueError("methods: needs one at least")
        if self.groups < 4 * self.update:
            raise ValueError(f"groups: needs four updates, {4 * self.update}, at least")
        settings = sum(len(knob.values) for knob in self.knobs.values())
        if len(self.places()) < len(self.tunnels) + settings:
            raise ValueError("knobs: a tunnel has the name KNOB-VALUE")

    @property
    def reference(self) -> str:
        """The method with which the others are compared over the settings of a knob."""
        return next(iter(self.methods))

    def places(self) -> dict[str, TunnelChoice]:
        """All tunnels by name, those of the knobs too."""
        turned: dict[str, TunnelChoice] = {}
        for name, knob in self.knobs.items():
            turned.update(knob.settings(name))
        return {**self.tunnels, **turned}


class Estimate(Record, kw_only=True):
    """A number and its standard error."""

    value: float
    error: float


class Foretold(Record, kw_only=True):
    """What theory says of an estimator's mean."""

    source: str
    """Where the figures come from."""
    scale: float
    bias: float


class QualityCell(Record, kw_only=True):
    """A method in a tunnel, with the policy of one seed.

    An update moves along g, the mean over groups of sum_t w_t A_t grad log pi(a_t|s_t),
    with the trainer's weights w times the expected length of a game. The true gradient
    is J. Lengths are those of vectors over all logits.
    """

    schema_version: int = SCHEMA_VERSION
    tunnel: str
    method: str
    seed: int
    unmeasured: str | None = None
    """Why there are no figures."""
    groups: int = 0
    steps: float = 0.0
    """Mean number of environment steps that a group costs."""
    responses: float = 0.0
    """Mean number of its responses that are updated."""
    success: float = 0.0
    """The policy's exact probability to win a game."""
    scale: Estimate | None = None
    """The part of g along J, E[g].J / J.J: 1 for an unbiased estimator."""
    bias: Estimate | None = None
    """|E[g] / scale - J|^2 / J.J: what else is in it. A learning rate mends a scale but
    not this. It is estimated without bias, so that it may be a little below 0.
    """
    variance: Estimate | None = None
    """The variance of a single group's g / scale, summed over logits, over J.J."""
    cosine: Estimate | None = None
    """Mean cosine between J and the g of one update; 0 for an update that is 0."""
    foretold: Foretold | None = None
    """None: no theory is at hand."""

    def cosine_at(self, budget: int, equal: str = "steps") -> float | None:
        """How an update of so many steps or responses points along the gradient.

        equal: which of them `budget` counts. Divided by its scale, the update lies off
        the gradient by bias + variance / groups in the mean, in squares of the
        gradient's length. All of it is taken to be at right angles. Below 0 where the
        scale is: the update points away. None without figures.
        """
        if self.scale is None or self.bias is None or self.variance is None:
            return None
        # `off` is the square of the tangent, and cos = (1 + tan^2)^(-1/2).
        of_group = self.responses if equal == "responses" else self.steps
        off = self.bias.value + self.variance.value * of_group / budget
        # The bias is estimated without bias, and may be below 0.
        return math.copysign((1 + max(off, 0.0)) ** -0.5, self.scale.value)


class CreditQuality(Record, kw_only=True):
    """The whole credit-quality.json."""

    schema_version: int = SCHEMA_VERSION
    study: dict[str, Any]
    """The study's file as it was measured."""
    cells: list[QualityCell]
    differences: list[SeedDifference] = field(default_factory=list)
    """For every setting of a knob (`panel`): what a method's update of `budget` steps or
    responses gains in cosine over the first method's, over the seeds' policies.
    """
