"""How many rows a training computes together, so that they fit into the free memory.

On a CPU, a command that takes too much is killed without a word. There the setting is
an upper bound: fewer rows change results only by rounding. Where the setting fits, it
is used as it is, whatever else is free. On a GPU an allocation that fails ends in an
error, so there is only a warning.
"""

from collections.abc import Callable

from agentcli.errors import UsageError
from agentcli.records.processes import process_count
from agentcli.records.settings import Settings
from agentcli.stages.memory import MemoryNeed
from agentcli.stages.plan import with_changes
from agentcli.stages.session import Session, begun_with

ROOM = 0.9
"""The share of the free memory that is used without lowering the number of rows."""


def fitting_settings(
    session: Session,
    path: str,
    need_of: Callable[[Settings], MemoryNeed | None],
    note: Callable[[str], None],
) -> Settings:
    """The session's settings, with fewer rows in a microbatch if memory is short.

    `path` is the setting with the rows. `need_of` estimates the memory of settings, or
    gives None if that cannot be estimated. `note` gets a line if the number is lowered.
    The session keeps it for --resume, which uses it again.

    Raises UsageError if even the fewest rows need more than is free.
    """
    section, _, name = path.partition(".")
    asked = getattr(getattr(session.settings, section), name)

    def use(rows: int) -> MemoryNeed | None:
        if rows != asked:
            changed = {section: {name: rows}}
            session.settings = with_changes(session.settings, **changed)
        return need_of(session.settings)

    recorded = _recorded(session, section, name)
    rows = recorded or asked
    because = "as it was begun"
    need = use(rows)
    if need is not None and need.device.is_gpu and need.advice:
        note(f"warning: {section} {need.advice}")
    elif need is not None and not need.device.is_gpu:
        short = need.total - ROOM * need.device.free
        if short > 0 and recorded is None and process_count() == 1:
            because = f"which {need.sentence}"
            rows = need.lower(short) or 1
            need = use(rows) or need
        if need.total > need.device.free:
            remedy = need.advice
            if recorded is not None:
                remedy = f"{need.sentence}; free some, or begin anew with --overwrite"
            raise UsageError(f"{section}: {remedy}")
    if rows != asked:
        note(f"{path}: {rows} in place of {asked}, {because}")
    return session.settings


def _recorded(session: Session, section: str, name: str) -> int | None:
    """The number of rows with which the stage was begun, if it is resumed."""
    if not session.invocation.resume:
        return None
    begun = begun_with(session.run.path, session.plan.stage) or {}
    rows = begun.get(section, {}).get(name)
    return rows if isinstance(rows, int) else None
