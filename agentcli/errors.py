"""Every error the tool raises on purpose, with its exit code.

    AgentCliError                     1  something failed that the user can act on
    |-- UsageError                    2  an option or setting that cannot take effect
    |-- DataError                     3  a file that does not hold what it should
    |-- MissingError                  4  an environment, dependency or folder is missing
    |-- WriteError                    1  a file that cannot be written
    |-- EngineError                   4  a live engine died, hung or raised
    |   `-- ReplayMismatchError       4  a replay gave another observation
    `-- PolicyError                   1  a policy could not answer one request
        `-- PromptTooLongError        1  a prompt longer than the limit

Exit code 0 means done or nothing owed, 130 interrupted. Each class also derives from
the standard exception that it replaces, so that users of the library can catch either.

A message is one line. It names the file or field, and says what to type next. The shell
prints it without a traceback, unless AGENTCLI_DEBUG=1.
"""

import shlex
from collections import abc
from contextlib import contextmanager

SHORTEN = "shorten prompts with --history, or conversations with prompt.restart"
"""What to do about prompts that are too long."""


def word_of(path: object) -> str:
    """A path as a word of a command: in quotes where it has blanks."""
    return shlex.quote(str(path))


class AgentCliError(Exception):
    """Something failed that the user can act on."""

    exit_code = 1


class UsageError(AgentCliError, ValueError):
    """An option, a setting or a combination of them that cannot take effect."""

    exit_code = 2


class DataError(AgentCliError, ValueError):
    """A file that does not hold what it should.

    The message names file, line and field.
    """

    exit_code = 3


class MissingError(AgentCliError, RuntimeError):
    """An environment, dependency, compiler or data folder that is not there."""

    exit_code = 4


class WriteError(AgentCliError, OSError):
    """A file that cannot be written, for instance on a full disk.

    What was written before is whole.
    """


class EngineError(AgentCliError, RuntimeError):
    """A live engine died, hung past its deadline or raised.

    Inside a rollout it becomes an errored leaf.
    """

    exit_code = 4


class ReplayMismatchError(EngineError):
    """A replayed prefix gave another observation than the recorded one.

    The message holds both texts.
    """


class PolicyError(AgentCliError, RuntimeError):
    """A policy could not answer one request, for instance because the endpoint is gone.

    Inside a rollout it becomes an errored leaf.
    """


class PromptTooLongError(PolicyError):
    """A prompt longer than policy.max_prompt_tokens, or than the server's context.

    Inside a rollout, rollout.overlong says what becomes of it.
    """


@contextmanager
def prefixed(place: str, kind: type[AgentCliError]) -> abc.Iterator[None]:
    """Puts the place before what such an error says that the block raises.

    Its class stays, and so its exit code.
    """
    try:
        yield
    except kind as error:
        raise type(error)(f"{place}: {error}") from error


def error_class(name: str) -> type[AgentCliError]:
    """The class of an error that another process reports by its name.

    EngineError for a name that is not in this file.
    """
    kind = globals().get(name)
    if isinstance(kind, type) and issubclass(kind, AgentCliError):
        return kind
    return EngineError
