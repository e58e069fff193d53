"""Checks of what an engine shows: that it is short enough, and the same as before."""

from agentcli.environments.engines import frames
from agentcli.environments.protocol import Observation
from agentcli.errors import EngineError, ReplayMismatchError
from agentcli.records.pictures import Picture

LONGEST_FAULT = 4000
"""Most characters of an error message; a world may put any text into one."""


def refuse_long(reply: frames.Reply | None, frame: bytes | None, most: int) -> None:
    """Raises EngineError if a reply, without its pictures, is longer than allowed."""
    pictures: tuple[Picture, ...] = ()
    if isinstance(reply, frames.Opened):
        pictures = reply.start.observation.pictures
    elif isinstance(reply, frames.Acted):
        pictures = reply.observation.pictures
    size = len(frame or b"") - sum(len(picture.png) for picture in pictures)
    if size > most:
        raise EngineError(
            f"its text and actions have {size} bytes, more than {most}; allow "
            "more with --set environment.most_text_bytes=N"
        )


def cut(fault: str) -> str:
    """The text of an error, without the middle of a long one."""
    if len(fault) <= LONGEST_FAULT:
        return fault
    half = LONGEST_FAULT // 2
    return f"{fault[:half]}...{fault[-half:]}"


def check_copy(now: Observation, then: Observation) -> None:
    """Raises ReplayMismatchError if a restored copy shows something else than before."""
    if now == then:
        return
    for name in Observation.__struct_fields__:
        shown = getattr(now, name)
        recorded = getattr(then, name)
        if shown != recorded:
            raise ReplayMismatchError(
                f"{name} of the restored copy is {shown!r}, recorded was {recorded!r}"
            )


def check_text(
    history: frames.History,
    index: int,
    text: str,
) -> None:
    """Raises ReplayMismatchError if a replay shows another text than was recorded."""
    recorded = history.observations[index]
    if text != recorded:
        raise ReplayMismatchError(
            f"replayed observation {index} is {text!r}, recorded was {recorded!r}"
        )
