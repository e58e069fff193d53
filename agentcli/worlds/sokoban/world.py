"""Sokoban: push every box onto a target.

Rewards are those of gym-sokoban: -0.1 a step, +1 for a box that comes onto a target and
-1 for one that leaves it, +10 for the last one.

Every sign of the text grid has one tile, so a picture can be read back into signs: the
tutor, which plans on signs, sees no more than the agent.
"""

import random
from collections.abc import Iterable
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING

import msgspec

from agentcli.environments.protocol import (
    FINISHED,
    Advice,
    Card,
    Context,
    Observation,
    Picture,
    Start,
    options_of,
)
from agentcli.errors import EngineError
from agentcli.records.files import derive_seed
from agentcli.records.pictures import require_pillow
from agentcli.records.section import Share
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.generated import StateEngine, drawn_as, drawn_tasks, strikes
from agentcli.worlds.sokoban.rules import (
    BOX,
    BOX_ON_TARGET,
    FLOOR,
    MOVES,
    PLAYER,
    PLAYER_ON_TARGET,
    SPLITS,
    TARGET,
    WALL,
    Cell,
    Position,
    SokobanOptions,
    beside,
    draw_level,
    read,
    solve,
)

if TYPE_CHECKING:
    from PIL.Image import Image

BOXES_SHOWN = 2
"""Boxes that the prompt mentions, the nearest ones."""


class SokobanHabits(msgspec.Struct, kw_only=True, frozen=True):
    """The fault that the expert has on purpose."""

    overlook: Share = 0.0
    """Share of positions in which it takes any action that moves something, and not the
    plan's.
    """


def last_grid(context: Context) -> str:
    """The last grid that was shown in signs.

    After a response that could not be read the agent sees words, and nothing has moved.
    """
    return next(
        text for text in reversed(context.observations) if text.startswith(WALL)
    )


def past(context: Context) -> str:
    """What was done last."""
    if context.actions:
        return f"last {context.actions[-1] or 'nothing'}"
    return "start"


def compact(context: Context) -> str:
    """Where boxes lie from the player, targets from the boxes, and what is around."""
    position = read(last_grid(context))
    player = position.player
    boxes = _by_distance(player, position.boxes - position.targets)
    lines = []
    for box in boxes[:BOXES_SHOWN]:
        # A box off its target leaves a target free, so there always is one.
        target = _by_distance(box, position.targets - position.boxes)[0]
        lines.append(f"box {_offset(player, box)} goal {_offset(box, target)}")
        lines.append(f"around {_around(position, box)}")
    lines.append(f"you {_around(position, player)}")
    lines.append(past(context))
    return "\n".join(lines)


def advise(grid: str, seed: int, habits: SokobanHabits) -> Advice:
    """The plan's next action, read off the grid that the agent sees."""
    position = read(grid)
    actions = position.possible()
    solution = solve(position)
    if not solution:
        # A box is stuck: nothing is left to do although the episode has not ended.
        return Advice("think", FINISHED, actions[0] if actions else "up")
    if strikes(habits.overlook, "overlook", seed, grid):
        rng = random.Random(derive_seed("stray", seed, grid))
        return Advice("explore", "try", rng.choice(actions))
    return Advice("think", _intention(position, solution), solution[0])


def describing(advice: Advice, grid: str) -> Advice:
    """The advice, after where things are: a picture does not say it in words."""
    if advice.sentence == FINISHED:
        return advice
    position = read(grid)
    player = position.player
    words = [f"you {_place(player)}"]
    boxes = _by_distance(player, position.boxes - position.targets)
    for box in boxes[:BOXES_SHOWN]:
        target = _by_distance(box, position.targets - position.boxes)[0]
        words.append(f"box {_place(box)} goal {_place(target)}")
    sentence = " ".join([*words, advice.sentence])
    return advice._replace(sentence=sentence)


def _place(cell: Cell) -> str:
    row, column = cell
    return f"row {row} column {column}"


def _intention(position: Position, solution: tuple[str, ...]) -> str:
    """The plan's next push, and where to stand for it: "push right stand down 2"."""
    # The steps before the push only lead to the cell behind the box.
    here = position
    for action in solution:
        after = here.moved(action)
        if after.boxes != here.boxes:
            break
        here = after
    stand = _offset(position.player, here.player) or "here"
    return f"push {action} stand {stand}"


def _by_distance(start: Cell, cells: Iterable[Cell]) -> list[Cell]:
    """The nearest cell first; ties by row and column."""
    row, column = start

    def distance(cell: Cell) -> int:
        return abs(cell[0] - row) + abs(cell[1] - column)

    return sorted(sorted(cells), key=distance)


def _offset(start: Cell, end: Cell) -> str:
    """How to get from one cell to another, e.g. "down 2 left 1"."""
    down = end[0] - start[0]
    right = end[1] - start[1]
    parts = []
    if down:
        way = "down" if down > 0 else "up"
        parts.append(f"{way} {abs(down)}")
    if right:
        way = "right" if right > 0 else "left"
        parts.append(f"{way} {abs(right)}")
    return " ".join(parts)


def _around(position: Position, cell: Cell) -> str:
    """The four sides of a cell, in words."""
    words = []
    for name, step in MOVES.items():
        side = beside(cell, step)
        if side in position.walls:
            words.append(f"{name} wall")
        elif side in position.boxes:
            words.append(f"{name} box")
        elif side in position.targets:
            words.append(f"{name} goal")
        else:
            words.append(f"{name} floor")
    return " ".join(words)


BRICK = (112, 112, 120)
GROUND = (24, 20, 28)
WOOD = (196, 132, 60)
RED = (216, 48, 56)
GREEN = (64, 176, 96)


@lru_cache(maxsize=16384)
def draw_room(grid: str, pixels: int) -> bytes:
    """The PNG of a text grid, `pixels` a cell."""
    from PIL import Image

    tiles = _tiles(pixels)
    rows = [row.split(" ") for row in grid.split("\n")]
    size = (pixels * len(rows[0]), pixels * len(rows))
    room = Image.new("RGB", size)
    for down, row in enumerate(rows):
        for right, sign in enumerate(row):
            room.paste(tiles[sign], (right * pixels, down * pixels))
    file = BytesIO()
    room.save(file, "PNG")
    return file.getvalue()


@lru_cache(maxsize=4096)
def read_room(png: bytes, pixels: int) -> str:
    """The text grid of which `draw_room` made a PNG."""
    from PIL import Image

    # Tiles differ for all signs, so their bytes name the sign.
    signs = {tile.tobytes(): sign for sign, tile in _tiles(pixels).items()}
    room = Image.open(BytesIO(png), formats=["PNG"])
    rows = []
    for top in range(0, room.height, pixels):
        cells = []
        for left in range(0, room.width, pixels):
            cell = room.crop((left, top, left + pixels, top + pixels))
            cells.append(signs[cell.tobytes()])
        rows.append(" ".join(cells))
    return "\n".join(rows)


@lru_cache(maxsize=8)
def _tiles(pixels: int) -> dict[str, "Image"]:
    from PIL import Image, ImageDraw

    edge = pixels - 1
    inset = max(2, pixels // 4)
    inside = (inset, inset, edge - inset, edge - inset)
    tiles = {}
    for sign in (WALL, FLOOR, TARGET, BOX, BOX_ON_TARGET, PLAYER, PLAYER_ON_TARGET):
        tile = Image.new("RGB", (pixels, pixels), BRICK if sign == WALL else GROUND)
        pen = ImageDraw.Draw(tile)
        if sign in (BOX, BOX_ON_TARGET):
            pen.rectangle((1, 1, edge - 1, edge - 1), fill=WOOD)
        if sign in (TARGET, BOX_ON_TARGET):
            pen.rectangle(inside, fill=RED)
        if sign == PLAYER_ON_TARGET:
            pen.rectangle((0, 0, edge, edge), fill=RED)
        if sign in (PLAYER, PLAYER_ON_TARGET):
            pen.ellipse((1, 1, edge - 1, edge - 1), fill=GREEN)
        if sign == WALL:
            pen.line((0, edge // 2, edge, edge // 2), fill=GROUND)
        tiles[sign] = tile
    return tiles


INSTRUCTION = (
    "Push every box onto a target. Boxes can be pushed, one at a time, and never "
    "pulled. # is a wall, _ floor, O a target, X a box, √ a box on a target, P you, "
    "S you on a target."
)
PICTURED = (
    "Push every box onto a target. Boxes can be pushed, one at a time, and never "
    "pulled. The picture shows the room: grey bricks are walls, red squares targets, "
    "brown squares boxes, a brown square with a red centre is a box on a target, and "
    "the green disc is you, on a red square where you stand on a target."
)
IN_THE_PICTURE = "The room is in the picture."

Moment = tuple[Position, bool, float]
"""A position, whether the action before was accepted, and its reward."""


class SokobanEngine(StateEngine[Moment]):
    """One level at a time; it is Solvable."""

    def __init__(self, options: SokobanOptions) -> None:
        self._options = options
        if options.pictures:
            require_pillow()

    def start(self, task: Task) -> Start:
        """Opens a task. Raises DataError for a task of other options."""
        split, index = drawn_as(task, self._options.digest())
        self._now = draw_level(self._options, split, index), True, 0.0
        instruction = PICTURED if self._options.pictures else INSTRUCTION
        return Start(instruction=instruction, observation=self._observe())

    def step(self, action: str) -> Observation:
        """Moves the player, and the box before it.

        An unknown action, or one that moves nothing, is not accepted.
        """
        before = after = self._now[0]
        command = action.strip().lower()
        if command in MOVES:
            after = before.moved(command)
        self._now = after, after is not before, _reward(before, after)
        return self._observe()

    def plan(self) -> list[str]:
        """The fewest actions from here. Raises EngineError when a box is stuck."""
        solution = solve(self._now[0])
        if solution is None:
            raise EngineError("no plan wins from here: a box is stuck")
        return list(solution)

    def _observe(self) -> Observation:
        position, accepted, reward = self._now
        grid = position.draw()
        text = grid
        actions = position.possible()
        pictures: tuple[Picture, ...] = ()
        if self._options.pictures:
            text = IN_THE_PICTURE
            # The free ways are to be seen, and not read (RewardFlow App. B.3).
            actions = tuple(MOVES)
            pictures = (Picture(draw_room(grid, self._options.pixels)),)
        return Observation(
            text=text,
            actions=actions,
            state=grid,
            accepted=accepted,
            reward=reward,
            end="success" if position.is_solved else None,
            pictures=pictures,
        )


def _reward(before: Position, after: Position) -> float:
    # gym-sokoban pays for the change, so pushing a box off and on again gains nothing.
    reward = -0.1 + after.boxes_home - before.boxes_home
    if after.is_solved:
        reward += 10.0
    # Rewards are tenths; a sum of floats would show its last digits.
    return round(reward, 1)


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
        self.options = options_of(settings, SokobanOptions)

    def tasks(self, split: str) -> list[Task]:
        """The levels of a split; none is drawn before it is played."""
        options = self.options
        size, boxes = str(options.size), str(options.boxes)
        kinds = [f"{boxes} boxes"] * getattr(options.levels, split)
        name = self.card.name
        return drawn_tasks(options.digest(), split, name, kinds, size=size, boxes=boxes)

    def engine(self) -> SokobanEngine:
        return SokobanEngine(self.options)

    def compact(self, context: Context) -> str:
        """Where boxes and targets lie, unless a picture shows it."""
        if self.options.pictures:
            return past(context)
        return compact(context)

    def vocabulary(self) -> list[str]:
        """Directions with their lengths, as whole tokens."""
        lengths = range(1, self.options.size)
        return sorted(f"{name} {length}" for name in MOVES for length in lengths)

    def next(self, context: Context, seed: int, habits: SokobanHabits) -> Advice:
        """The plan's next action."""
        if not self.options.pictures:
            return advise(last_grid(context), seed, habits)
        grid = read_room(context.pictures[0].png, self.options.pixels)
        return describing(advise(grid, seed, habits), grid)
