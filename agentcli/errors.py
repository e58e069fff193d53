"""Every error the tool raises on purpose.

Each class carries the exit code the command line ends with and also derives from the standard exception it
replaces, so library users can catch either. A message is one line that names the file or field and says what to
type next; the shell prints it without a traceback unless AGENTCLI_DEBUG=1.
"""


class AgentCliError(Exception):
    """Something failed that the user can act on (exit code 1)."""

    exit_code = 1


class UsageError(AgentCliError, ValueError):
    """An option, setting or combination of them that cannot take effect (exit code 2)."""

    exit_code = 2


class DataError(AgentCliError, ValueError):
    """A file that does not hold what it should; the message names file, line and field (exit code 3)."""

    exit_code = 3


class WriteError(AgentCliError, OSError):
    """A file that cannot be written: a full disk, a folder that is none (exit code 1). What was written before is whole."""


class MissingError(AgentCliError, RuntimeError):
    """An environment, dependency, compiler or data folder that is not there (exit code 4)."""

    exit_code = 4


class EngineError(AgentCliError, RuntimeError):
    """A live engine died, hung past its deadline or raised. Inside a rollout it becomes an errored leaf."""

    exit_code = 4


class ReplayMismatchError(EngineError):
    """A replayed prefix gave another observation than the recorded one; the message holds both texts."""


class PolicyError(AgentCliError, RuntimeError):
    """A policy could not answer one request (prompt too long, endpoint gone). Inside a rollout: an errored leaf."""


class PromptTooLongError(PolicyError):
    """A prompt longer than policy.max_prompt_tokens, or than the server's context. Inside a rollout: what rollout.overlong says."""
