"""The room as a picture, and a picture read back into signs.

Every sign of the text grid has one tile, so nothing is lost between the two.
"""

from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING

from agentcli.worlds.sokoban.rules import (
    BOX,
    BOX_ON_TARGET,
    FLOOR,
    PLAYER,
    PLAYER_ON_TARGET,
    TARGET,
    WALL,
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
