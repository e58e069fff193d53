"""Pictures: PNG files in RUN/pictures/<sha256>.png, each stored once.

A picture is written before the tree that names it, and appears complete. Pictures from
a world or a file are checked before they are used. All limits are defined here.
"""

import hashlib
import os
import struct
import warnings
from collections.abc import Iterable, Mapping, Sequence
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
"""The largest size of one picture."""
MOST_PIXELS = 2**22
"""The largest picture: 2048 x 2048."""
MOST_PICTURES = 16
"""The most pictures in one observation."""
# The IEND chunk with its checksum: Pillow reads a file without it silently.
PNG_END = b"\0\0\0\0IEND\xaeB`\x82"


class Picture(msgspec.Struct, frozen=True):
    """An image that belongs to an observation."""

    png: bytes

    @property
    def name(self) -> str:
        """The name of its file, without the suffix."""
        return name_of(self.png)

    def __repr__(self) -> str:
        return f"Picture({self.name})"


def name_of(png: bytes) -> str:
    """The name of a picture: the sha256 of its bytes, in hex."""
    return hashlib.sha256(png).hexdigest()


def require_pillow() -> None:
    """Raises MissingError if Pillow is not installed."""
    try:
        import PIL.Image  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise MissingError(
            "pictures need Pillow; pip install 'agentcli[vision]'"
        ) from error


def fault_of(png: bytes) -> str | None:
    """Why these bytes are not a valid picture; None if they are.

    Raises MissingError without Pillow.
    """
    require_pillow()
    from PIL import Image, UnidentifiedImageError

    if len(png) > LARGEST_BYTES:
        return f"is larger than {LARGEST_BYTES} bytes"
    try:
        # Pillow warns of large pictures, which are refused below.
        with warnings.catch_warnings(action="ignore"):
            # Untrusted bytes reach only this one of Pillow's decoders.
            picture = Image.open(BytesIO(png), formats=["PNG"])
        width, height = picture.size
        # Known from the header, before anything is unpacked.
        if width * height > MOST_PIXELS:
            return f"has {width} x {height} pixels, more than {MOST_PIXELS}"
        if not png.endswith(PNG_END):
            return "is a truncated PNG"
        picture.load()
    except UnidentifiedImageError:
        return "is not a PNG"
    except Exception as error:
        # Pillow raises almost any exception for damaged bytes.
        return f"is a damaged PNG ({error})"
    return None


def refuse_faulty(pictures: Sequence[Picture]) -> None:
    """Raises EngineError if an observation may not have these pictures."""
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
    """The folder with the pictures of a trees file.

    The trees of an evaluation are two folders below the run, in evaluation/trees.
    """
    folder = trees.parent
    if folder.parts[-2:] == ("evaluation", "trees"):
        folder = folder.parent.parent
    return folder / "pictures"


def picture_file(folder: Path, name: str) -> Path:
    """The path of a picture."""
    return folder / f"{name}.png"


def keep_pictures(folder: Path, pictures: Mapping[str, bytes]) -> None:
    """Writes the pictures that do not exist yet. Raises WriteError."""
    # Only one writer holds the run; it replaces what a killed one left.
    part = part_of(folder / "picture")
    for name, png in pictures.items():
        file = picture_file(folder, name)
        if not is_there(file):
            with writing(file):
                folder.mkdir(parents=True, exist_ok=True)
                try:
                    part.write_bytes(png)
                    os.replace(part, file)
                except BaseException:
                    part.unlink(missing_ok=True)
                    raise


def read_picture(folder: Path, name: str) -> bytes:
    """The bytes of a picture.

    Raises DataError if it is missing, altered or not a PNG.
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


class PictureCheck:
    """Looks at every picture of a folder once, however often steps name it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sound: set[str] = set()

    def refuse_damaged(self, names: Iterable[str]) -> None:
        """Raises what `read_picture` raises."""
        for name in names:
            if name not in self._sound:
                read_picture(self.folder, name)
                self._sound.add(name)


def read_pictures(folder: Path, tree: Tree) -> dict[str, bytes]:
    """All pictures of a tree by name. Raises what `read_picture` raises."""
    return {name: read_picture(folder, name) for name in pictures_of(tree)}


def described(folder: Path, name: str) -> str:
    """Describes a picture by its size and file, or says what is wrong with it.

    The file name is shortened to fit on a line and can still be typed.
    """
    try:
        png = read_picture(folder, name)
    except DataError as error:
        return str(error)
    # The IHDR chunk comes first in every PNG; its numbers stand at byte 16.
    width, height = struct.unpack("!II", png[16:24])
    return f"picture, {width} x {height}: {folder / name[:12]}*.png"


def copy_pictures(trees: Path, folder: Path) -> None:
    """Copies the pictures of a trees file into another folder.

    Raises DataError and WriteError.
    """
    source = folder_beside(trees)
    for tree in read_records(trees, Tree):
        keep_pictures(folder, read_pictures(source, tree))


def drop_unnamed(run: RunDirectory) -> None:
    """Removes the pictures that no trees of the run name any more.

    If some trees cannot be read, removes nothing.
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
