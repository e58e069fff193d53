"""The records of a run: Task, Step, Tree, Credit, Panel, Manifest.

Everything sampled for one task in one rollout is one tree. A step is an edge: the state
it leaves, the response that was sampled, the action taken and what came back. Steps
with the same parent are siblings sampled from the same state; a root-to-leaf path is a
trajectory; a GRPO group is a tree that branches only at the root. Trees hold counts,
never times, so that one seed means one file, byte for byte; times are in the manifest.
"""

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

SCHEMA_VERSION = 3
"""The version of the records' form.

2: log-probabilities are those of the tempered distribution; exact state keys leave out
the last text. 3: steps say whether they only looked and carry a method's notes; tasks
carry their attributes.
"""

LARGEST_REWARD = 1e9
"""Rewards, scores, values and advantages beyond it are refused.

Sums of their squares must stay finite in float32.
"""
LEAST_LOGPROB = -1e4
"""The least that is accepted; some servers say -9999 for "very unlikely"."""
LARGEST_LOGPROB = 1e-6
"""The largest that is accepted; 0 may come out a rounding error above."""

Position = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""The place of a step in its tree, or of a token in its vocabulary."""
Count = Annotated[int, Meta(ge=0, le=2**53)]
"""Exact as a float."""
Reward = Annotated[float, Meta(ge=-LARGEST_REWARD, le=LARGEST_REWARD)]
Score = Annotated[float, Meta(ge=-1e15, le=1e15)]
"""The sum of up to a million rewards."""
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
LogProbability = Annotated[float, Meta(ge=LEAST_LOGPROB, le=LARGEST_LOGPROB)]
Temperature = Annotated[float, Meta(ge=0, le=1e9)]
"""T of softmax(logits / T); 0 is greedy."""
PictureName = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
"""The sha256 of a picture, in hex; its file is RUN/pictures/<name>.png."""
Pictures = tuple[PictureName, ...] | msgspec.UnsetType
"""Names of pictures, in order; not written where there are none."""


class Record(msgspec.Struct, forbid_unknown_fields=True):
    """Base of all records: unknown fields are refused with their path."""


class Outcome(StrEnum):
    """How a trajectory ended."""

    SUCCESS = "success"
    """The environment says the task is done."""
    FAILURE = "failure"
    """The environment ended the episode without success."""
    TRUNCATED = "truncated"
    """The horizon K was reached."""
    ERRORED = "errored"
    """The engine or the policy broke; left out of every group statistic, and counted.
    """


class Validity(StrEnum):
    """Whether a response led to an action that did something."""

    VALID = "valid"
    MALFORMED = "malformed"
    """No action can be read from the response; the environment was not stepped."""
    INADMISSIBLE = "inadmissible"
    """The engine did not accept the action."""


class StopReason(StrEnum):
    """Why generation ended."""

    STOP = "stop"
    """The end-of-turn token was sampled (it is the last of token_ids)."""
    LENGTH = "length"
    """max_tokens were generated first."""
    OVERLONG = "overlong"
    """The prompt was longer than policy.max_prompt_tokens: no model was asked, and the
    trajectory has failed (rollout.overlong).
    """
    NONE = "none"
    """No model was asked (expert, random, or an error before sampling)."""


class Task(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One episode. Its id is unique in its world and enough to open it."""

    id: str
    world: str
    split: str
    kind: str
    """Task type within the world, e.g. pick_clean_then_place_in_recep."""
    attributes: dict[str, str] = {}
    """Further names for --where, e.g. {"room": "kitchen"}."""


class Move(Record, kw_only=True):
    """The part of a step in one of several copies of the environment (dpepo)."""

    copy: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    """1-based: the index i of <env_i>."""
    action: str
    validity: Validity = Validity.VALID
    observation: str
    """The text that the policy saw of this copy before acting."""
    admissible: list[str] = []
    state: str
    """This and the next three fields are those of Step, for this copy."""
    next_state: str
    canonical: str | None = None
    next_canonical: str | None = None
    next_observation: str
    looked: bool = False
    reward: Reward = 0.0
    outcome: Outcome | None = None
    """Set when this copy ended with this move."""


class Step(Record, kw_only=True):
    """One edge of a tree.

    `prompt` is the user message as text; the chat template of the policy's tokenizer
    turns it into tokens. `token_ids` and `logprobs` (natural log) are those of the
    response, the end-of-turn token included; both are empty when no model was asked.
    """

    id: Position
    """Position in Tree.steps; a parent always comes before its children."""
    parent: Position | None
    prompt: str
    pictures: Pictures = msgspec.UNSET
    """The pictures that the policy saw, after the text of the prompt."""
    response: str
    token_ids: list[Position] = []
    logprobs: list[LogProbability] = []
    """Under softmax(logits / logprob_temperature)."""
    generated_tokens: Count | msgspec.UnsetType = msgspec.UNSET
    """Tokens of a response whose `token_ids` a server did not give; else not written."""
    temperature: Temperature = 1.0
    """T that the response was sampled at. The behaviour policy of 002 eq. 10 is
    softmax(logits / T).
    """
    logprob_temperature: Temperature = 1.0
    """T of the distribution that `logprobs` are of: `temperature`, except for greedy
    responses (1) and for endpoints that return log-probabilities before tempering (1).
    """
    redrawn: Count = 0
    """Responses that were drawn and thrown away before this one, because their action
    was a sibling's (rollout.distinct).
    """
    stop: StopReason = StopReason.NONE
    observation: str
    """The text that the policy saw before acting."""
    admissible: list[str] = []
    tag: str | None = None
    """Reasoning tag of the response: think, explore, ..."""
    action: str | None = None
    """None when malformed."""
    validity: Validity = Validity.VALID
    state: str
    """Exact state key before the action: equal keys have an equal future, whatever was
    read last.
    """
    next_state: str
    canonical: str | None = None
    """The papers' state before the action, f(s) of 002 B.1: what the agent sees, with
    what it cannot see but must know. None: the world has no other than `state`.
    """
    next_canonical: str | None = None
    next_observation: str
    next_pictures: Pictures = msgspec.UNSET
    """The pictures that came back, of all copies that acted."""
    looked: bool = False
    """The world says that the action only looked. RewardFlow's graph leaves such steps
    out (002 B.2).
    """
    reward: Reward = 0.0
    """The environment's own reward for this step."""
    outcome: Outcome | None = None
    """Set on leaves, and only there."""
    error: str | None = None
    """The fault, when the outcome is errored."""
    mask: str | None = None
    """Why this step must not be imitated (noise in a demonstration), else None."""
    moves: list[Move] = []
    """One response acting in several copies at once: its moves, at most one a copy;
    empty for a step in one environment. Then `action` is None, and observation, states
    and reward are the joined ones.
    """
    value: Reward | None = None
    """A critic's V(s) before the action, where one was asked."""
    score: Reward | msgspec.UnsetType = msgspec.UNSET
    """A process reward model's score of the response; else not written."""
    notes: dict[str, float | str] = {}
    """Numbers and words that the exploration method recorded here, by name, for its
    credit method to read.
    """

    @property
    def request(self) -> tuple[str, Pictures]:
        """What the policy was asked: pictures may differ where texts do not."""
        return self.prompt, self.pictures

    @property
    def tokens(self) -> int:
        """How many tokens the response has."""
        if isinstance(self.generated_tokens, int):
            return self.generated_tokens
        return len(self.token_ids)


class Ledger(Record, kw_only=True):
    """The cost of a tree, or of a whole stage. Counts only."""

    leaves: Count = 0
    steps: Count = 0
    """Steps executed for the agent (malformed ones included), each shared prefix once;
    one that acts in several copies of the environment counts once for each.
    """
    forks: Count = 0
    """Children beyond the first that were continued from one state other than the
    initial one.
    """
    siblings: Count = 0
    """Steps that share the state they leave with another step sampled there, the
    initial state included.
    """
    distinct_siblings: Count = 0
    """The different actions of these steps, counted in each state by itself.

    As many as `siblings` where no fork repeats another.
    """
    replayed_steps: Count = 0
    """Environment steps spent to restore states."""
    generated_tokens: Count = 0
    prompt_tokens: Count = 0
    shared_prompt_tokens: Count = 0
    """Prompt tokens that a prefix cache pays once: of a sibling after the first all,
    for it is the same prompt; of a first child those with which its prompt begins like
    its parent's. Endpoints do not report the latter, so there it is a lower bound.
    """

    def __add__(self, other: "Ledger") -> "Ledger":
        total = Ledger()
        for name in self.__struct_fields__:
            setattr(total, name, getattr(self, name) + getattr(other, name))
        return total


class Tree(Record, kw_only=True):
    """Everything sampled for one task in one rollout."""

    schema_version: int = SCHEMA_VERSION
    task: Task
    instruction: str
    """The task sentence the agent was given."""
    method: str
    seed: int
    roots: Count | None = None
    """How many trajectories started from the initial state before any fork of it (M of
    spark, N0 of carl): its first children. None: the method makes no such difference.
    """
    steps: list[Step]
    ledger: Ledger


INHERITED = "inherited"
"""The part that an only child without an advantage carries.

It is the advantage that it would take from the step before (003 eq. 16).
"""


class StepCredit(Record, kw_only=True):
    """The credit of one training row.

    `advantage` None means not assigned, with the reason in `masked`; 0.0 is an assigned
    zero. A step may occur several times (prefix: duplicate).
    """

    step: Position
    advantage: Reward | None
    parts: dict[str, float] = {}
    """The advantage's summands and what they were computed from, by name."""
    masked: str | None = None
    weight: Annotated[float, Meta(ge=0, le=1e6)] = 1.0


class GraphSize(Record, kw_only=True):
    """The size of a state graph (002 Table 9).

    An edge is one action between two states, however often it was taken.
    """

    nodes: Count
    edges: Count


class Credit(Record, kw_only=True):
    """The credit that one method assigns to one tree."""

    schema_version: int = SCHEMA_VERSION
    task: str
    """Task id of the tree."""
    method: str
    steps: list[StepCredit]
    graph: GraphSize | None = None
    """Size of the state graph that the credit rests on, where the method builds one."""


class Episode(Record, kw_only=True):
    """One evaluated episode: a root-to-leaf path reduced to what the metrics need."""

    schema_version: int = SCHEMA_VERSION
    task: str
    kind: str
    sample: Count
    """0-based index among the samples of this task."""
    outcome: Outcome
    score: Score
    """Sum of the environment's rewards; of several copies that of the best."""
    steps: Count
    """Responses."""
    moves: Count | None = None
    """Steps, but one that acts in several copies of the environment counts once for
    each. None: written by an agentcli that did not count them; there a step is
    repetitive or inadmissible when all its moves are.
    """
    tokens: Count
    repetitive_steps: Count
    """Moves whose action already occurred in the episode from the same state, in the
    same copy.
    """
    explore_steps: Count
    malformed_steps: Count
    inadmissible_steps: Count
    """Moves."""
    error: str | None = None
    ledger: Ledger | None = None
    """The cost of all samples of this task; on the first of them only."""


class Panel(Record, kw_only=True):
    """A fixed ordered list of tasks with the sha256 of their ids joined by newlines."""

    schema_version: int = SCHEMA_VERSION
    name: str
    world: str
    tasks: list[Task]
    sha256: str


class StageRecord(Record, kw_only=True):
    """The record of one stage, written when it ended."""

    command: list[str]
    settings: dict[str, Any]
    """Fully resolved settings of the command."""
    versions: dict[str, str]
    git_commit: str | None
    seed: int
    inputs: dict[str, str] = {}
    """sha256 of every file read, by path."""
    panel: str | None = None
    """Hash of the panel, where one was walked."""
    panel_name: str | None = None
    counts: dict[str, Count] = {}
    ledger: Ledger | None = None
    statistics: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    """wall, policy, environment, orchestration, ..."""
    started: str
    finished: str


class Manifest(Record, kw_only=True):
    """manifest.json of a run directory: one entry per stage that ended there, e.g.
    rollout, credit/grpo, train.
    """

    schema_version: int = SCHEMA_VERSION
    stages: dict[str, StageRecord] = {}
