"""Sokoban in text: push every box onto a target. Seeded levels that can be solved,
exact forks, an expert, and a tutor.

A level is drawn by playing backwards: boxes start on their targets and are pulled away,
so every level can be solved. The level's own digest says which split it belongs to, so
no two splits share a level. Signs, actions and rewards are those of gym-sokoban: -0.1 a
step, +1 for a box that comes onto a target and -1 for one that leaves it, +10 for the
last one.
"""

import hashlib
import random
from collections import deque
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from agentcli.environments.protocol import (
    FINISHED,
    Advice,
    Card,
    Context,
    Observation,
    Start,
)
from agentcli.errors import DataError, EngineError, UsageError
from agentcli.records.files import derive_seed
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task

WALL, FLOOR, TARGET, BOX, BOX_ON_TARGET, PLAYER, PLAYER_ON_TARGET = "#_OX√PS"
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
SPLITS = {"train": range(0, 80), "valid": range(80, 90), "test": range(90, 100)}
"""Split -> the levels that it holds, by their digest modulo 100."""
INSTRUCTION = (
    "Push every box onto a target. Boxes can be pushed, one at a time, and never "
    "pulled. # is a wall, _ floor, O a target, X a box, √ a box on a target, P you, "
    "S you on a target."
)
MOST_STATES = 200_000
"""States that a search visits before it gives up."""
PATIENCE = 2000
"""Levels drawn before the options are refused."""

Cell = tuple[int, int]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Number = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class Warehouse(msgspec.Struct, frozen=True):
    """The walls and targets of a level."""

    size: int
    walls: frozenset[Cell]
    targets: frozenset[Cell]


class Pieces(msgspec.Struct, frozen=True):
    """Where the player and the boxes are."""

    player: Cell
    boxes: frozenset[Cell]


def moved(room: Warehouse, position: Pieces, action: str) -> Pieces:
    """The position after an action; the same object where nothing moves."""
    step = MOVES[action]
    ahead = _beside(position.player, step)
    if ahead in room.walls:
        return position
    if ahead not in position.boxes:
        return Pieces(ahead, position.boxes)
    behind = _beside(ahead, step)
    if behind in room.walls or behind in position.boxes:
        return position
    return Pieces(ahead, position.boxes - {ahead} | {behind})


def is_solved(room: Warehouse, position: Pieces) -> bool:
    """Whether every box stands on a target."""
    return position.boxes <= room.targets


def possible(room: Warehouse, position: Pieces) -> tuple[str, ...]:
    """The actions that move something."""
    return tuple(
        action for action in MOVES if moved(room, position, action) is not position
    )


def draw(room: Warehouse, position: Pieces) -> str:
    """The grid as text: one line a row, signs apart."""
    rows = (
        [_sign(room, position, (row, column)) for column in range(room.size)]
        for row in range(room.size)
    )
    return "\n".join(" ".join(row) for row in rows)


def read(text: str) -> tuple[Warehouse, Pieces]:
    """The room and the position that `draw` wrote."""
    signs = {
        (row, column): sign
        for row, line in enumerate(text.split("\n"))
        for column, sign in enumerate(line.split())
    }

    def where(wanted: str) -> frozenset[Cell]:
        return frozenset(cell for cell, sign in signs.items() if sign in wanted)

    room = Warehouse(
        text.count("\n") + 1,
        where(WALL),
        where(TARGET + BOX_ON_TARGET + PLAYER_ON_TARGET),
    )
    (player,) = where(PLAYER + PLAYER_ON_TARGET)
    return room, Pieces(player, where(BOX + BOX_ON_TARGET))


def last_grid(context: Context) -> str:
    """The last grid that was seen. After a response that could not be read the agent
    sees words, and nothing has moved.
    """
    return next(
        text for text in reversed(context.observations) if text.startswith(WALL)
    )


@lru_cache(maxsize=65536)
def solve(room: Warehouse, position: Pieces) -> tuple[str, ...] | None:
    """The fewest actions that solve it, by breadth-first search; None when there are
    none, or none was met in MOST_STATES.
    """
    came_from: dict[Pieces, tuple[Pieces, str] | None] = {position: None}
    queue = deque([position])
    while queue and len(came_from) < MOST_STATES:
        here = queue.popleft()
        if is_solved(room, here):
            return _way(came_from, here)
        for action in MOVES:
            after = moved(room, here, action)
            if after not in came_from:
                came_from[after] = here, action
                queue.append(after)
    return None


def _way(
    came_from: dict[Pieces, tuple[Pieces, str] | None], end: Pieces
) -> tuple[str, ...]:
    actions: list[str] = []
    step = came_from[end]
    while step is not None:
        actions.append(step[1])
        step = came_from[step[0]]
    return tuple(reversed(actions))


def _sign(room: Warehouse, position: Pieces, cell: Cell) -> str:
    if cell in room.walls:
        return WALL
    on_target = cell in room.targets
    if cell in position.boxes:
        return BOX_ON_TARGET if on_target else BOX
    if cell == position.player:
        return PLAYER_ON_TARGET if on_target else PLAYER
    return TARGET if on_target else FLOOR


def _beside(cell: Cell, step: tuple[int, int]) -> Cell:
    return cell[0] + step[0], cell[1] + step[1]


class Levels(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Levels of each split."""

    train: Number = 2000
    valid: Number = 100
    test: Number = 200


class SokobanOptions(
    msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True
):
    """environment.options of Sokoban."""

    size: Annotated[int, msgspec.Meta(ge=5, le=12)] = 6
    """Rows and columns, the outer walls included."""
    boxes: Annotated[int, msgspec.Meta(ge=1, le=4)] = 1
    blocks: Number = 2
    """Walls inside the room."""
    shortest: Annotated[int, msgspec.Meta(ge=1, le=200)] = 4
    longest: Annotated[int, msgspec.Meta(ge=1, le=200)] = 15
    """Fewest and most actions that the best solution takes."""
    levels: Levels = Levels()
    seed: Number = 0


class SokobanHabits(msgspec.Struct, kw_only=True, frozen=True):
    """What is wrong with the expert on purpose."""

    overlook: Share = 0.0
    """Share of positions in which it takes any action that moves something, and not the
    plan's.
    """


@lru_cache(maxsize=4096)
def draw_level(
    options: SokobanOptions, split: str, index: int
) -> tuple[Warehouse, Pieces]:
    """The level of a task, the same for ever. Raises UsageError for options under which
    none can be drawn.
    """
    rng = random.Random(derive_seed("sokoban", options.seed, split, index))
    for _ in range(PATIENCE):
        room, position = _pulled_apart(options, rng)
        digest = hashlib.sha256(draw(room, position).encode()).digest()
        if (
            int.from_bytes(digest[:8], "big") % 100 not in SPLITS[split]
            or position.boxes & room.targets
        ):
            continue
        solution = solve(room, position)
        if (
            solution is not None
            and options.shortest <= len(solution) <= options.longest
        ):
            return room, position
    raise UsageError(
        f"environment.options: no level of size {options.size} with {options.boxes} "
        f"boxes and {options.blocks} blocks is solved in {options.shortest} to "
        f"{options.longest} actions; raise longest or size, or lower shortest, boxes "
        "or blocks"
    )


def _pulled_apart(
    options: SokobanOptions, rng: random.Random
) -> tuple[Warehouse, Pieces]:
    """A room with its boxes pulled away from the targets by a random walk."""
    size = options.size
    inside = [
        (row, column) for row in range(1, size - 1) for column in range(1, size - 1)
    ]
    rng.shuffle(inside)
    if options.blocks + options.boxes + 1 > len(inside):
        raise UsageError(
            f"environment.options.blocks: {options.blocks} leave no room for boxes "
            f"and player in size {size}"
        )
    free = inside[options.blocks :]
    border = {(row, column) for row in range(size) for column in range(size)} - set(
        inside
    )
    room = Warehouse(
        size,
        frozenset(border | set(inside[: options.blocks])),
        frozenset(free[: options.boxes]),
    )
    position = Pieces(free[options.boxes], room.targets)
    for _ in range(rng.randint(size, 12 * size)):
        position = _pulled(
            room, position, MOVES[rng.choice(tuple(MOVES))], rng.random() < 0.7
        )
    return room, position


def _pulled(
    room: Warehouse, position: Pieces, step: tuple[int, int], pulls: bool
) -> Pieces:
    """One step backwards: the player walks, and may pull the box that stands behind it."""
    ahead = _beside(position.player, step)
    if ahead in room.walls or ahead in position.boxes:
        return position
    behind = _beside(position.player, (-step[0], -step[1]))
    if pulls and behind in position.boxes:
        return Pieces(ahead, position.boxes - {behind} | {position.player})
    return Pieces(ahead, position.boxes)


class SokobanEngine:
    """One level at a time: an Engine that is Forkable and Solvable."""

    def __init__(self, options: SokobanOptions) -> None:
        self._options = options

    def start(self, task: Task) -> Start:
        """Opens a task. Raises DataError for a task of other options."""
        prefix, split, index = task.id.split("/")
        if prefix != digest_of(self._options):
            raise DataError(
                f"task {task.id}: these environment.options make "
                f"{digest_of(self._options)}; use those of its panel"
            )
        self._room, self._position = draw_level(self._options, split, int(index))
        return Start(instruction=INSTRUCTION, observation=self._observe(True, 0.0))

    def step(self, action: str) -> Observation:
        """Moves the player, and the box before it. An action that is none, or moves
        nothing, is not accepted.
        """
        before = self._position
        command = action.strip().lower()
        if command in MOVES:
            self._position = moved(self._room, before, command)
        return self._observe(self._position is not before, self._reward(before))

    def snapshot(self) -> Any:
        """The position, and how it was reached."""
        return self._position, self._reached

    def restore(self, snapshot: Any) -> Observation:
        """Puts player and boxes back."""
        self._position, reached = snapshot
        return self._observe(*reached)

    def plan(self) -> list[str]:
        """The fewest actions from here. Raises EngineError when a box is stuck."""
        solution = solve(self._room, self._position)
        if solution is None:
            raise EngineError("no plan wins from here: a box is stuck")
        return list(solution)

    def _reward(self, before: Pieces) -> float:
        targets = self._room.targets
        gained = len(self._position.boxes & targets) - len(before.boxes & targets)
        return round(-0.1 + gained + 10.0 * is_solved(self._room, self._position), 1)

    def _observe(self, accepted: bool, reward: float) -> Observation:
        self._reached = accepted, reward
        grid = draw(self._room, self._position)
        return Observation(
            text=grid,
            actions=possible(self._room, self._position),
            state=grid,
            accepted=accepted,
            reward=reward,
            end="success" if is_solved(self._room, self._position) else None,
        )


def digest_of(options: SokobanOptions) -> str:
    """The part of a task's id that names the options its level was drawn under."""
    shape = (
        options.size,
        options.boxes,
        options.blocks,
        options.shortest,
        options.longest,
        options.seed,
    )
    return "-".join(map(str, shape))


class SokobanWorld:
    """The World and its Tutor."""

    card = Card(
        name="sokoban",
        role="You are an expert at the puzzle game Sokoban.",
        splits=tuple(SPLITS),
        evaluation_split="test",
        best_reward=None,
    )
    habits = SokobanHabits

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = msgspec.convert(settings.options, SokobanOptions)

    def tasks(self, split: str) -> list[Task]:
        """The levels of a split; none is drawn before it is played."""
        if split not in SPLITS:
            raise UsageError(f"--split {split}: sokoban has {', '.join(SPLITS)}")
        prefix = digest_of(self.options)
        kind = f"{self.options.boxes} boxes"
        attributes = {"size": str(self.options.size), "boxes": str(self.options.boxes)}
        return [
            Task(
                id=f"{prefix}/{split}/{index}",
                world=self.card.name,
                split=split,
                kind=kind,
                attributes=attributes,
            )
            for index in range(getattr(self.options.levels, split))
        ]

    def engine(self) -> SokobanEngine:
        """A new engine."""
        return SokobanEngine(self.options)

    def compact(self, context: Context) -> str:
        """Where boxes lie from the player and targets from the boxes, and what is next
        to both.
        """
        room, position = read(last_grid(context))
        lines = []
        for box in sorted(
            position.boxes - room.targets,
            key=lambda box: (_distance(position.player, box), box),
        )[:2]:
            goal = min(
                room.targets - position.boxes,
                key=lambda cell: (_distance(box, cell), cell),
            )
            lines.append(
                f"box {_offset(position.player, box)} goal {_offset(box, goal)}"
            )
            lines.append(f"around {_around(room, position, box)}")
        lines.append(f"you {_around(room, position, position.player)}")
        lines.append(
            f"last {context.actions[-1] or 'nothing'}" if context.actions else "start"
        )
        return "\n".join(lines)

    def vocabulary(self) -> list[str]:
        """Directions with their lengths, as whole tokens."""
        return sorted(
            f"{name} {length}"
            for name in MOVES
            for length in range(1, self.options.size)
        )

    def next(self, context: Context, seed: int, habits: SokobanHabits) -> Advice:
        """The plan's next action, read off the grid that the agent sees; FINISHED where
        a box is stuck.
        """
        text = last_grid(context)
        room, position = read(text)
        solution = solve(room, position)
        if not solution:
            return Advice("think", FINISHED, next(iter(possible(room, position)), "up"))
        if derive_seed("overlook", seed, text) < habits.overlook * 2.0**64:
            stray = random.Random(derive_seed("stray", seed, text)).choice(
                possible(room, position)
            )
            return Advice("explore", "try", stray)
        return Advice("think", _intention(room, position, solution), solution[0])


def _intention(room: Warehouse, position: Pieces, solution: tuple[str, ...]) -> str:
    """The plan's next push, and where to stand for it: "push right stand down 2 left
    1".
    """
    here = position
    for action in solution:
        after = moved(room, here, action)
        if after.boxes != here.boxes:
            stand = _offset(position.player, here.player) or "here"
            return f"push {action} stand {stand}"
        here = after
    raise EngineError("a plan that pushes no box solves nothing")


def _offset(start: Cell, end: Cell) -> str:
    """How to get from one cell to another, e.g. "down 2 left 1"."""
    down = end[0] - start[0]
    right = end[1] - start[1]
    parts = []
    if down:
        parts.append(f"{'down' if down > 0 else 'up'} {abs(down)}")
    if right:
        parts.append(f"{'right' if right > 0 else 'left'} {abs(right)}")
    return " ".join(parts)


def _distance(start: Cell, end: Cell) -> int:
    return abs(start[0] - end[0]) + abs(start[1] - end[1])


def _around(room: Warehouse, position: Pieces, cell: Cell) -> str:
    """What lies on the four sides of a cell, in words."""
    words = []
    for name, step in MOVES.items():
        beside = _beside(cell, step)
        if beside in room.walls:
            what = "wall"
        elif beside in position.boxes:
            what = "box"
        elif beside in room.targets:
            what = "goal"
        else:
            what = "floor"
        words.append(f"{name} {what}")
    return " ".join(words)
