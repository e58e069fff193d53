"""Loads the pictures of steps from the files of a run, or refuses them."""

from pathlib import Path

from agentcli.environments.protocol import Picture
from agentcli.errors import DataError
from agentcli.records.pictures import folder_beside, read_picture
from agentcli.records.types import Step


class PictureShelf:
    """The pictures of trees; each is read once."""

    def __init__(self) -> None:
        self._pictures: dict[str, Picture] = {}

    def of(self, step: Step, trees: Path) -> tuple[Picture, ...]:
        """The pictures that the policy saw in a step of this trees file, in order.

        Raises DataError if one is missing or altered.
        """
        folder = folder_beside(trees)
        pictures = []
        for name in step.pictures or ():
            if name not in self._pictures:
                self._pictures[name] = Picture(read_picture(folder, name))
            pictures.append(self._pictures[name])
        return tuple(pictures)


def refuse_pictures(pictures: object, place: str, reader: str) -> None:
    """Raises DataError if there are pictures but their reader supports only text."""
    if pictures:
        raise DataError(
            f"{place}.pictures: {reader} reads texts only; learn from pictures with a "
            "model that sees, by sft or train.objective=policy-gradient"
        )
