"""What every refusal must look like: the exit code, one line, and in it the file or key and what to type next.

How the sentence is worded is nobody's business here, so that messages may be improved without touching tests.
"""

from collections.abc import Callable, Sequence
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


def refused(
    attempt: Ended | Call, code: int = 2, names: str | Sequence[str] = (), remedy: str | Sequence[str] = ()
) -> str:
    """The one line with which `attempt` was refused: a command that ended, or a call that raises an AgentCliError.

    `names` are the files, keys or values that the line must name, `remedy` is what it must tell to type.
    """
    line = _raised(attempt, code) if callable(attempt) else _printed(attempt, code)
    assert line.strip(), "an error without a message"
    assert "\n" not in line, line
    for part in (*_parts(names), *_parts(remedy)):
        assert part in line, f"{part!r} is not in: {line}"
    return line


def _raised(call: Call, code: int) -> str:
    with pytest.raises(AgentCliError) as caught:
        call()
    assert caught.value.exit_code == code, caught.value
    return str(caught.value)


def _printed(answer: Ended, code: int) -> str:
    assert (answer.code, answer.stdout) == (code, ""), answer
    assert answer.stderr.startswith("error: "), answer
    assert answer.stderr.endswith("\n"), answer
    line = answer.stderr.removeprefix("error: ").removesuffix("\n")
    assert "(unexpected" not in line, line
    assert "Traceback" not in line, line
    return line


def _parts(parts: str | Sequence[str]) -> Sequence[str]:
    return (parts,) if isinstance(parts, str) else parts
