"""Pictures: PNG files beside the trees, RUN/pictures/<sha256>.png, each kept once.

A picture is written before the tree that names it, and appears whole under its name.
What a world or a file gives is checked before anybody uses it. The limits stand here
alone.
"""

import hashlib
import os
import struct
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import msgspec

from agentcli.errors import DataError, EngineError, MissingError
from agentcli.records.files import part_of, read_records, writing
from agentcli.records.regular import is_there, open_regular
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Tree

LARGEST_BYTES = 4 * 2**20
"""The most of one picture."""
MOST_PIXELS = 2**22
"""The most of one picture: those of 2048 x 2048."""
MOST_PICTURES = 16
"""The most of one observation."""
PNG_END = b"\0\0\0\0IEND\xaeB`\x82"


class Picture(msgspec.Struct, frozen=True):
    """An image that belongs to an observation."""

    png: bytes

    @property
    def name(self) -> str:
        """Its name in files."""
        return name_of(self.png)

    def __repr__(self) -> str:
        return f"Picture({self.name})"


def name_of(png: bytes) -> str:
    """The name of a picture: the sha256 of its bytes, in hex."""
    return hashlib.sha256(png).hexdigest()


def require_pillow() -> None:
    """Raises MissingError without Pillow."""
    try:
        import PIL.Image  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise MissingError(
            "pictures need Pillow; pip install 'agentcli[vision]'"
        ) from error


def fault_of(png: bytes) -> str | None:
    """Why these bytes are not a picture; None where they are one.

    Raises MissingError without Pillow.
    """
    require_pillow()
    from PIL import Image, UnidentifiedImageError

    if len(png) > LARGEST_BYTES:
        return f"is larger than {LARGEST_BYTES} bytes"
    try:
        with warnings.catch_warnings(action="ignore"):
            picture = Image.open(BytesIO(png), formats=["PNG"])
        width, height = picture.size
        if width * height > MOST_PIXELS:
            return f"has {width} x {height} pixels, more than {MOST_PIXELS}"
        if not png.endswith(PNG_END):
            return "is a truncated PNG"
        picture.load()
    except UnidentifiedImageError:
        return "is not a PNG"
    except Exception as error:
        # Pillow raises nearly anything over damaged bytes.
        return f"is a damaged PNG ({error})"
    return None


def refuse_faulty(pictures: Sequence[Picture]) -> None:
    """Raises EngineError for an observation that cannot have these pictures."""
    count = len(pictures)
    if count > MOST_PICTURES:
        raise EngineError(
            f"{count} pictures in one observation, more than {MOST_PICTURES}"
        )
    for number, picture in enumerate(pictures, 1):
        fault = fault_of(picture.png)
        if fault is not None:
            raise EngineError(f"picture {number} of {count} {fault}")


def pictures_of(tree: Tree) -> list[str]:
    """The names of all pictures of a tree, each once."""
    names: dict[str, None] = {}
    for step in tree.steps:
        for name in (*(step.pictures or ()), *(step.next_pictures or ())):
            names[name] = None
    return list(names)


def folder_beside(trees: Path) -> Path:
    """The folder of the pictures that the trees of a file name.

    The trees of an evaluation lie two folders below the run, in evaluation/trees.
    """
    folder = trees.parent
    if folder.parts[-2:] == ("evaluation", "trees"):
        folder = folder.parent.parent
    return folder / "pictures"


def picture_file(folder: Path, name: str) -> Path:
    """Where a picture lies."""
    return folder / f"{name}.png"


def keep_pictures(folder: Path, pictures: Mapping[str, bytes]) -> None:
    """Writes the pictures that are not there yet. Raises WriteError."""
    # One writer at a time holds the run; the next one replaces what a killed one left.
    part = part_of(folder / "picture")
    for name, png in pictures.items():
        file = picture_file(folder, name)
        if not is_there(file):
            with writing(file):
                folder.mkdir(parents=True, exist_ok=True)
                part.write_bytes(png)
                os.replace(part, file)


def read_picture(folder: Path, name: str) -> bytes:
    """The bytes of a picture.

    Raises DataError for one that is missing, altered or not a PNG.
    """
    file = picture_file(folder, name)
    remedy = f"copy the folder {folder.name} from where the run was made"
    if not is_there(file):
        raise DataError(f"{file}: no such file, and a tree names it; {remedy}")
    with open_regular(file) as opened:
        png = opened.read(LARGEST_BYTES + 1)
    fault = fault_of(png)
    if fault is None and name_of(png) != name:
        fault = "is another picture than the one of this name"
    if fault is not None:
        raise DataError(f"{file}: {fault}; {remedy}")
    return png


def read_pictures(folder: Path, tree: Tree) -> dict[str, bytes]:
    """All pictures of a tree, by name. Raises what `read_picture` raises."""
    return {name: read_picture(folder, name) for name in pictures_of(tree)}


def described(folder: Path, name: str) -> str:
    """A picture in words: its size and its file, or what is wrong with it.

    The file's name is cut short, so that it fits a line and can still be typed.
    """
    try:
        png = read_picture(folder, name)
    except DataError as error:
        return str(error)
    width, height = struct.unpack("!II", png[16:24])
    return f"picture, {width} x {height}: {folder / name[:12]}*.png"


def copy_pictures(trees: Path, folder: Path) -> None:
    """Copies the pictures that the trees of a file name into another folder.

    Raises DataError and WriteError.
    """
    source = folder_beside(trees)
    for tree in read_records(trees, Tree):
        keep_pictures(folder, read_pictures(source, tree))


def drop_unnamed(run: RunDirectory) -> None:
    """Removes the pictures that no trees of a run name any more.

    Where trees cannot be read, all stay.
    """
    if not is_there(run.pictures):
        return
    names: set[str] = set()
    with suppress(DataError):
        for file in run.tree_files:
            for tree in read_records(file, Tree):
                names.update(pictures_of(tree))
        for picture in run.pictures.glob("*.png"):
            if picture.stem not in names:
                picture.unlink()
