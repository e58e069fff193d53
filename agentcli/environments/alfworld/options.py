"""ALFWorld's own settings: what the generator draws, and which engine plays.

They arrive as `environment.options` and are decoded here into one typed struct. The
digest of everything that shapes a game names the cache folder, so that a task id below
one digest is one game, for ever. The engine is left out of it.
"""

import difflib
import hashlib
from typing import Any, Literal

import msgspec

from agentcli.errors import UsageError

GENERATOR_VERSION = 1
"""Raised whenever the same settings would give other games."""

Kind = Literal[
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
]
RoomKind = Literal["kitchen", "living", "bedroom", "bathroom"]

KINDS: tuple[Kind, ...] = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""The six task types in the official numbering, 1 to 6."""
ROOMS: tuple[RoomKind, ...] = ("kitchen", "living", "bedroom", "bathroom")

OFFICIAL_GAMES: dict[str, tuple[int, ...]] = {
    "train": (790, 308, 650, 459, 533, 813),
    "valid_seen": (35, 13, 27, 16, 25, 24),
    "valid_unseen": (24, 18, 31, 23, 21, 17),
}
"""Games per split and task type, in the order of KINDS: 3,553, 140 and 134 (ALFWorld,
Shridhar et al. 2021, Table 1).
"""


class Games(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How many games each split holds."""

    train: int = 3553
    valid_seen: int = 140
    valid_unseen: int = 134


class AlfworldOptions(
    msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True
):
    """Settings of the world. Those of the generator take effect only where no real data
    set is read.
    """

    engine: Literal["fast", "stock"] = "fast"
    kinds: list[Kind] | None = None
    """Task types that are drawn; None: all that the rooms allow."""
    rooms: list[RoomKind] | None = None
    """Room kinds that are drawn; None: all four."""
    scenes_per_room: int | None = None
    """Only the N training floor plans with the fewest receptacles per room kind.
    valid_unseen keeps its own.
    """
    clutter: int = 12
    """At most so many types of object beside the task's own."""
    distractor_instances: int = 3
    """At most so many objects of one type (one more of the task's own where two are
    wanted).
    """
    games: Games = msgspec.field(default_factory=Games)
    seed: int = 0

    def digest(self) -> str:
        """16 hex digits that name the games these settings make."""
        shape = {
            name: value
            for name, value in msgspec.to_builtins(self).items()
            if name != "engine"
        }
        shape["kinds"] = sorted(self.kinds or KINDS)
        shape["rooms"] = sorted(self.rooms or ROOMS)
        text = msgspec.json.encode([GENERATOR_VERSION, sorted(shape.items())])
        return hashlib.sha256(text).hexdigest()[:16]


def decode_options(options: dict[str, Any]) -> AlfworldOptions:
    """`environment.options` as a typed struct. Raises UsageError naming the field, and
    the nearest name if unknown.
    """
    _refuse_unknown(options, AlfworldOptions, "environment.options")
    if isinstance(options.get("games"), dict):
        _refuse_unknown(options["games"], Games, "environment.options.games")
    try:
        decoded = msgspec.convert(options, AlfworldOptions)
    except msgspec.ValidationError as error:
        raise UsageError(f"environment.options: {error}") from error
    _refuse_senseless(decoded)
    return decoded


def _refuse_unknown(
    given: dict[str, Any], kind: type[msgspec.Struct], place: str
) -> None:
    names = kind.__struct_fields__
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = (
                f"did you mean {near[0]}?"
                if near
                else f"alfworld has {', '.join(names)}"
            )
            raise UsageError(f"{place}.{name}: no such setting; {hint}")


def _refuse_senseless(options: AlfworldOptions) -> None:
    least = {"clutter": 0, "distractor_instances": 1, "scenes_per_room": 1}
    for name, bound in least.items():
        value = getattr(options, name)
        if value is not None and value < bound:
            raise UsageError(f"environment.options.{name}: {value} is below {bound}")
    for name in Games.__struct_fields__:
        if getattr(options.games, name) < 0:
            raise UsageError(
                f"environment.options.games.{name}: {getattr(options.games, name)} is "
                "below 0"
            )
    for name in ("kinds", "rooms"):
        value = getattr(options, name)
        if value is not None and (not value or len(set(value)) != len(value)):
            raise UsageError(
                f"environment.options.{name}: needs at least one name and none twice"
            )
