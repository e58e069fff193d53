"""ScienceWorld's own settings; they arrive as `environment.options`."""

from typing import Annotated, Literal

import msgspec

Simplification = Literal[
    "teleportAction",
    "openDoors",
    "openContainers",
    "noElectricalAction",
    "selfWateringFlowerPots",
    "easy",
]
Megabytes = Annotated[int, msgspec.Meta(ge=128, le=65536)]


class ScienceWorldOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Settings of the world."""

    simplifications: list[Simplification] = msgspec.field(
        default_factory=lambda: ["easy"]
    )
    """What the simulator makes easier. easy, which the papers use, is all but
    openContainers (and keeps wires where a task needs them). Empty: nothing.
    """
    heap_mb: Megabytes = 512
    """Heap of the Java process of each engine process. One with 128 games needs 70 MB;
    where it is full the process ends, and its games are replayed in another.
    """

    @property
    def prefix(self) -> str:
        """Begins the ids of the tasks that these settings make."""
        return "+".join(sorted(set(self.simplifications))) or "plain"

    @property
    def simplification(self) -> str:
        """The simplifications as the simulator reads them."""
        return ",".join(sorted(set(self.simplifications)))
