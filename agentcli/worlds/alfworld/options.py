"""ALFWorld's own settings: what the generator draws, and which engine plays.

They arrive as `environment.options`. The digest of everything that shapes a game names
the cache folder, so a task id below one digest is one game, for ever. The engine is
left out of it.
"""

import hashlib
from typing import Annotated, Literal, get_args

import msgspec

from agentcli.records.section import Count, CountFromZero

GENERATOR_VERSION = 1
"""Increase when the same settings generate other games."""

Kind = Literal[
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
]
RoomKind = Literal["kitchen", "living", "bedroom", "bathroom"]
NotEmpty = msgspec.Meta(min_length=1)

KINDS: tuple[Kind, ...] = get_args(Kind)
"""The six task types in the official numbering, 1 to 6."""
ROOMS: tuple[RoomKind, ...] = get_args(RoomKind)

OFFICIAL_GAMES: dict[str, tuple[int, ...]] = {
    "train": (790, 308, 650, 459, 533, 813),
    "valid_seen": (35, 13, 27, 16, 25, 24),
    "valid_unseen": (24, 18, 31, 23, 21, 17),
}
"""Games per split and task type, in the order of KINDS: 3,553, 140 and 134 (ALFWorld,
Shridhar et al. 2021, Table 1).
"""


class Games(msgspec.Struct, kw_only=True, frozen=True):
    """Games of each split."""

    train: CountFromZero = 3553
    valid_seen: CountFromZero = 140
    valid_unseen: CountFromZero = 134


class AlfworldOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Settings of the world; the generator's do nothing where real games are read."""

    engine: Literal["fast", "stock"] = "fast"
    kinds: Annotated[list[Kind], NotEmpty] | None = None
    """Task types that are drawn; None: all that the rooms allow."""
    rooms: Annotated[list[RoomKind], NotEmpty] | None = None
    """Room kinds that are drawn; None: all four."""
    scenes_per_room: Count | None = None
    """Only the N training floor plans with the fewest receptacles per room kind.
    valid_unseen keeps its own.
    """
    clutter: CountFromZero = 12
    """The most types of object beside the task's own."""
    # With many more a game is not drawn, or not read, within a minute.
    distractor_instances: Annotated[int, msgspec.Meta(ge=1, le=50)] = 3
    """The most objects of one type (one more of the task's own where two are
    wanted).
    """
    games: Games = msgspec.field(default_factory=Games)
    seed: int = 0

    def __post_init__(self) -> None:
        for name, values in (("kinds", self.kinds), ("rooms", self.rooms)):
            if values and len(set(values)) != len(values):
                raise ValueError(f"{name}: names one twice; leave it out")

    def digest(self) -> str:
        """16 hex digits that name the games these settings make."""
        shape = msgspec.to_builtins(self)
        del shape["engine"]
        shape["kinds"] = sorted(self.kinds or KINDS)
        shape["rooms"] = sorted(self.rooms or ROOMS)
        text = msgspec.json.encode([GENERATOR_VERSION, sorted(shape.items())])
        return hashlib.sha256(text).hexdigest()[:16]
