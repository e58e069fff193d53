"""What every refusal must look like: the exit code, one line, and in it the file or key and what to type next.

How the sentence is worded is nobody's business here, so that messages may be improved without touching tests.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias

import pytest
from agentcli.errors import AgentCliError


class Ended(Protocol):
    """What a command left on the terminal."""

    @property
    def code(self) -> int: ...
    @property
    def stdout(self) -> str: ...
    @property
    def stderr(self) -> str: ...


Call: TypeAlias = Callable[[], object]
Texts: TypeAlias = str | Sequence[str]


def refused(attempt: Ended | Call, code: int = 2, names: Texts = (), remedy: Texts = ()) -> str:
    """The one line with which `attempt` was refused: a command that ended, or a call that raises an AgentCliError.

    `names` are the files, keys or values that the line must name, `remedy` is what it must tell to type.
    """
    if callable(attempt):
        with refusal(code, names, remedy) as caught:
            attempt()
        return str(caught.value)
    line = _printed(attempt, code)
    _check(line, names, remedy)
    return line


@contextmanager
def refusal(code: int = 2, names: Texts = (), remedy: Texts = ()) -> Iterator[pytest.ExceptionInfo[AgentCliError]]:
    """Holds that the block is refused, as `refused` does for a call."""
    with pytest.raises(AgentCliError) as caught:
        yield caught
    assert caught.value.exit_code == code, caught.value
    _check(str(caught.value), names, remedy)


def _check(line: str, names: Texts, remedy: Texts) -> None:
    assert line.strip(), "an error without a message"
    assert "\n" not in line, line
    for part in (*_parts(names), *_parts(remedy)):
        assert part in line, f"{part!r} is not in: {line}"


def _printed(answer: Ended, code: int) -> str:
    assert (answer.code, answer.stdout) == (code, ""), answer
    assert answer.stderr.startswith("error: "), answer
    assert answer.stderr.endswith("\n"), answer
    line = answer.stderr.removeprefix("error: ").removesuffix("\n")
    assert "(unexpected" not in line, line
    assert "Traceback" not in line, line
    return line


def _parts(parts: Texts) -> Sequence[str]:
    return (parts,) if isinstance(parts, str) else parts
