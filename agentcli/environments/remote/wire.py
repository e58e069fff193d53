"""What goes over the wire between a served world and those who play it.

The shape is OpenEnv's: a websocket at /ws is one session, and carries `reset`, `step`
and `state` as JSON, each answered in turn. What a world has besides travels in further
fields and messages, which other clients of OpenEnv need not know:

    reset   task (an id), or split and seed   -> observation
    step    action, at (a state's number)     -> observation
    state                                     -> state
    plan    at                                -> plan
    judge   argument, at                      -> verdict
    close

Every state that a session has reached keeps its number until the next reset: a step
from an older one is a fork. GET /world says all that needs no session (`ServedWorld`).
"""

from typing import Any

import msgspec

from agentcli.environments.protocol import Card, Context, Observation

PROTOCOL = 1
"""The version of the messages that OpenEnv has not."""
TOKEN_VARIABLE = "AGENTCLI_WORLD_TOKEN"
"""The environment variable that holds the secret of a server and of its clients."""
MOST_BYTES = 16 * 2**20
"""The longest message."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
CAPACITY = "CAPACITY_REACHED"
"""The error code of a server that has no session left, as in OpenEnv."""
SESSION = "SESSION_ERROR"
"""The error code of a session that is no more, as in OpenEnv."""
INVALID = "VALIDATION_ERROR"
EXECUTION = "EXECUTION_ERROR"


class ResetData(msgspec.Struct):
    """Which task to open: one by its id, else the seed counts along a split."""

    task: str | None = None
    split: str | None = None
    seed: int | None = None


class StepData(msgspec.Struct):
    """What to do, and where."""

    action: str
    at: int | None = None
    """The number of a state of this session; None: the last one."""


class PlanData(msgspec.Struct):
    """From where to plan."""

    at: int | None = None


class JudgeData(msgspec.Struct):
    """What to judge."""

    argument: str
    at: int | None = None


class ResetMessage(msgspec.Struct, tag_field="type", tag="reset"):
    """Open a task."""

    data: ResetData = msgspec.field(default_factory=ResetData)


class StepMessage(msgspec.Struct, tag_field="type", tag="step"):
    """Act."""

    data: StepData


class StateMessage(msgspec.Struct, tag_field="type", tag="state"):
    """Say where the session is."""


class PlanMessage(msgspec.Struct, tag_field="type", tag="plan"):
    """Plan the actions that win."""

    data: PlanData = msgspec.field(default_factory=PlanData)


class JudgeMessage(msgspec.Struct, tag_field="type", tag="judge"):
    """Score the tools."""

    data: JudgeData


class CloseMessage(msgspec.Struct, tag_field="type", tag="close"):
    """End the session."""


Message = (
    ResetMessage
    | StepMessage
    | StateMessage
    | PlanMessage
    | JudgeMessage
    | CloseMessage
)
read_message = msgspec.json.Decoder(Message).decode


class ServedObservation(Observation, kw_only=True, frozen=True, omit_defaults=True):
    """An observation with its place in the session."""

    number: int
    """The number of the state."""
    exact: bool
    """The server can go back to it without a replay."""
    instruction: str | None = None
    """The task sentence; after a reset only."""

    def plain(self) -> Observation:
        """The observation alone."""
        names = Observation.__struct_fields__
        return Observation(**{name: getattr(self, name) for name in names})


class ServedStep(msgspec.Struct):
    """The answer to a reset and to a step."""

    observation: ServedObservation
    reward: float
    done: bool


class SessionState(msgspec.Struct):
    """The answer to `state`."""

    episode_id: str
    """The session's own id."""
    step_count: int
    task: str | None


class Fault(msgspec.Struct):
    """An error of a request; the session goes on."""

    message: str
    code: str = EXECUTION
    kind: str = "EngineError"
    """A class of agentcli/errors.py."""


class ServerMessage(msgspec.Struct):
    """Any message of the server, its data not read yet."""

    type: str
    data: msgspec.Raw = msgspec.Raw(b"null")


class ServedPlan(msgspec.Struct):
    """The answer to `plan`."""

    actions: list[str]


class ServedHabit(msgspec.Struct):
    """A number among the habits of a world's searching expert."""

    name: str
    default: float


class ServedWorld(msgspec.Struct, kw_only=True):
    """All that is known of a served world without a session."""

    protocol: int
    version: str
    """The agentcli that serves it."""
    card: Card
    solvable: bool
    forms: str | None = None
    """Guiding.forms; None: the world is not Guiding."""
    tools: dict[str, str] | None = None
    """Toolbox.tools; None: the world is no Toolbox."""
    vocabulary: list[str] | None = None
    """Tutor.vocabulary(); None: the world is not a Tutor."""
    habits: list[ServedHabit] = []


def served_habits(kind: type[msgspec.Struct]) -> list[ServedHabit]:
    """The habits of a tutor, each with what it is where nothing is said."""
    sound = msgspec.structs.asdict(kind())
    return [ServedHabit(name, value) for name, value in sound.items()]


class NextData(msgspec.Struct):
    """What a searching expert is asked with."""

    context: Context
    seed: int
    habits: dict[str, Any]


def packed(kind: str, data: Any) -> str:
    """A message as text."""
    return msgspec.json.encode({"type": kind, "data": data}).decode()
