"""Sokoban: push every box onto a target.

Rewards are those of gym-sokoban: -0.1 a step, +1 for a box that comes onto a target and
-1 for one that leaves it, +10 for the last one.

The room as a picture, and a picture read back into signs.

Every sign of the text grid has one tile, so nothing is lost between the two.
"""

from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING

from agentcli.environments.protocol import (
    Advice,
    Card,
    Context,
    Observation,
    Picture,
    Start,
    options_of,
)
from agentcli.errors import DataError, EngineError
from agentcli.records.pictures import require_pillow
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.sokoban import tutor
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
    Position,
    SokobanOptions,
    draw_level,
    solve,
)

if TYPE_CHECKING:
    from PIL.Image import Image

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
    room = Image.new("RGB", (pixels * len(rows[0]), pixels * len(rows)))
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
    """The picture of each sign."""
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


class SokobanEngine:
    """One level at a time: an Engine that is Forkable and Solvable."""

    def __init__(self, options: SokobanOptions) -> None:
        self._options = options
        if options.pictures:
            require_pillow()

    def start(self, task: Task) -> Start:
        """Opens a task. Raises DataError for a task of other options."""
        prefix, split, index = task.id.split("/")
        if prefix != self._options.digest():
            raise DataError(
                f"task {task.id}: these environment.options make "
                f"{self._options.digest()}; use those of its panel"
            )
        self._position = draw_level(self._options, split, int(index))
        instruction = PICTURED if self._options.pictures else INSTRUCTION
        return Start(instruction=instruction, observation=self._observe(True, 0.0))

    def step(self, action: str) -> Observation:
        """Moves the player, and the box before it.

        An unknown action, or one that moves nothing, is not accepted.
        """
        before = self._position
        command = action.strip().lower()
        if command in MOVES:
            self._position = before.moved(command)
        return self._observe(self._position is not before, self._reward(before))

    def snapshot(self) -> Moment:
        return self._position, *self._reached

    def restore(self, snapshot: Moment) -> Observation:
        """Puts player and boxes back."""
        self._position, accepted, reward = snapshot
        return self._observe(accepted, reward)

    def plan(self) -> list[str]:
        """The fewest actions from here. Raises EngineError when a box is stuck."""
        solution = solve(self._position)
        if solution is None:
            raise EngineError("no plan wins from here: a box is stuck")
        return list(solution)

    def _reward(self, before: Position) -> float:
        now = self._position
        reward = -0.1 + now.boxes_home - before.boxes_home
        if now.is_solved:
            reward += 10.0
        return round(reward, 1)

    def _observe(self, accepted: bool, reward: float) -> Observation:
        # An Observation holds them too, so a snapshot must give them back.
        self._reached = accepted, reward
        position = self._position
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


class SokobanWorld:
    """The World and its Tutor."""

    card = Card(
        name="sokoban",
        role="You are an expert at the puzzle game Sokoban.",
        splits=tuple(SPLITS),
        evaluation_split="test",
        best_reward=None,
    )
    habits = tutor.SokobanHabits

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = options_of(settings, SokobanOptions)

    def tasks(self, split: str) -> list[Task]:
        """The levels of a split; none is drawn before it is played."""
        options = self.options
        return [
            Task(
                id=f"{options.digest()}/{split}/{index}",
                world=self.card.name,
                split=split,
                kind=f"{options.boxes} boxes",
                attributes={"size": str(options.size), "boxes": str(options.boxes)},
            )
            for index in range(getattr(options.levels, split))
        ]

    def engine(self) -> SokobanEngine:
        return SokobanEngine(self.options)

    def compact(self, context: Context) -> str:
        """Where boxes and targets lie (see tutor.py), unless a picture shows it."""
        if self.options.pictures:
            return tutor.past(context)
        return tutor.compact(context)

    def vocabulary(self) -> list[str]:
        return tutor.vocabulary(self.options.size)

    def next(
        self,
        context: Context,
        seed: int,
        habits: tutor.SokobanHabits,
    ) -> Advice:
        """The plan's next action (see tutor.py)."""
        if not self.options.pictures:
            return tutor.advise(tutor.last_grid(context), seed, habits)
        grid = read_room(context.pictures[0].png, self.options.pixels)
        return tutor.describing(tutor.advise(grid, seed, habits), grid)
