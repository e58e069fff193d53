"""The records of a run: Task, Step, Tree, Credit, Panel, Manifest.

Everything sampled for one task in one rollout is one tree. A step is an edge: the state
where it starts, the sampled response, the action and what it returned. Steps with the
same parent are siblings sampled from the same state; a root-to-leaf path is a
trajectory; a GRPO group is a tree that branches only at the root. Trees contain counts
but no times, so that the same seed gives the same file, byte for byte; times are in the
manifest.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

SCHEMA_VERSION = 3
"""The version of the record schema.

Version 2: log-probabilities are those of the tempered distribution; exact state keys
leave out the last text. Version 3: steps record whether they only looked, and a
method's notes; tasks record their attributes.
"""

LARGEST_REWARD = 1e9
"""The bound on the size of rewards, scores, values and advantages.

The sums of their squares must stay finite in float32.
"""
LEAST_LOGPROB = -1e4
"""The smallest value accepted; some servers say -9999 for "very unlikely"."""
LARGEST_LOGPROB = 1e-6
"""The largest value accepted; a log-probability of 0 may be rounded up slightly."""

Position = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""The index of a step in its tree, or of a token in its vocabulary."""
Count = Annotated[int, Meta(ge=0, le=2**53)]
"""Bounded so that a float represents it exactly."""
Reward = Annotated[float, Meta(ge=-LARGEST_REWARD, le=LARGEST_REWARD)]
Score = Annotated[float, Meta(ge=-1e15, le=1e15)]
"""The sum of up to a million rewards."""
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
LogProbability = Annotated[float, Meta(ge=LEAST_LOGPROB, le=LARGEST_LOGPROB)]
Temperature = Annotated[float, Meta(ge=0, le=1e9)]
"""T in softmax(logits / T); 0 is greedy."""
PictureName = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
"""The SHA-256 of a picture, in hex; its file is RUN/pictures/<name>.png."""
Pictures = tuple[PictureName, ...] | msgspec.UnsetType
"""Names of pictures, in order; not written if there are none."""


class Record(msgspec.Struct, forbid_unknown_fields=True):
    """Base class of all records: an unknown field is refused, naming its path."""


class Outcome(StrEnum):
    """How a trajectory ended."""

    SUCCESS = "success"
    """The environment says the task is done."""
    FAILURE = "failure"
    """The environment ended the episode without success."""
    TRUNCATED = "truncated"
    """The horizon K was reached."""
    ERRORED = "errored"
    """The engine or the policy failed; counted, and excluded from every group
    statistic.
    """


class Validity(StrEnum):
    """Whether a response led to an action that did something."""

    VALID = "valid"
    MALFORMED = "malformed"
    """No action can be read from the response; the environment was not stepped."""
    INADMISSIBLE = "inadmissible"
    """The engine refused the action."""


class StopReason(StrEnum):
    """The reason why generation ended."""

    STOP = "stop"
    """The end-of-turn token was sampled (it is the last of token_ids)."""
    LENGTH = "length"
    """max_tokens was reached first."""
    OVERLONG = "overlong"
    """The prompt was longer than policy.max_prompt_tokens: no model was asked, and the
    trajectory counts as failed (rollout.overlong).
    """
    NONE = "none"
    """No model was asked (expert, random, or an error before sampling)."""


TOO_LONG = "the prompt is too long"
"""The mask of a step whose prompt was too long (StopReason.OVERLONG)."""
IMPORTED = "imported"
"""The world of tasks that were played elsewhere (agentcli import): none can play them."""


class Task(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One game to play. Its id is unique in its world and sufficient to open it."""

    id: str
    world: str
    split: str
    kind: str
    """Task type within the world, e.g. pick_clean_then_place_in_recep."""
    attributes: dict[str, str] = {}
    """Further attributes for --where, e.g. {"room": "kitchen"}."""


class Move(Record, kw_only=True):
    """What a step does in one of several copies of the environment (dpepo)."""

    copy: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    """1-based: the index i of <env_i>."""
    action: str
    validity: Validity = Validity.VALID
    observation: str
    """The text of this copy that the policy saw before acting."""
    admissible: list[str] = []
    state: str
    """This field and the next three are as in Step, but for this copy."""
    next_state: str
    canonical: str | None = None
    next_canonical: str | None = None
    next_observation: str
    looked: bool = False
    reward: Reward = 0.0
    outcome: Outcome | None = None
    """Set if this move ended this copy."""


Continues = Literal["exact", "sampled", "rendered"]
"""How a prompt continues a conversation.

exact: what was sampled stays as it is, and the chat template agrees. sampled: it stays,
whatever the template would write. rendered: the template writes the whole conversation
anew, and may leave thoughts out.
"""

PARSED = "parsed"
"""The note on a step whose response only a parser could read (rollout.parser)."""


class Step(Record, kw_only=True):
    """One edge of a tree.

    `prompt` is the user message as text; the chat template of the policy's tokenizer
    turns it into tokens. In a conversation that grows it is what was added, and the
    rest is with the steps before. `token_ids` and `logprobs` (natural log) are those of the
    response, the end-of-turn token included; both are empty if no model was asked.
    """

    id: Position
    """Index in Tree.steps; a parent always comes before its children."""
    parent: Position | None
    prompt: str
    system: str | msgspec.UnsetType = msgspec.UNSET
    """The system message before the prompt, if the step begins a conversation that has
    one; else not written.
    """
    tools: str | msgspec.UnsetType = msgspec.UNSET
    """The schemas of the tools, as JSON, if the step begins a conversation that calls
    them in the form of the chat template (prompt.tools); else not written.
    """
    role: Literal["tool"] | msgspec.UnsetType = msgspec.UNSET
    """tool: the prompt is what a call returned; not written for a user message."""
    continues: Continues | msgspec.UnsetType = msgspec.UNSET
    """How the prompt continues the conversation of the parent; not written if it stands
    alone.
    """
    pictures: Pictures = msgspec.UNSET
    """The pictures that the policy saw, placed after the text of the prompt."""
    prompt_ids: list[Position] | msgspec.UnsetType = msgspec.UNSET
    """The tokens of an imported prompt, a conversation that `prompt` only shows as text;
    not written for other steps.
    """
    response: str
    token_ids: list[Position] = []
    logprobs: list[LogProbability] = []
    """Under softmax(logits / logprob_temperature)."""
    generated_tokens: Count | msgspec.UnsetType = msgspec.UNSET
    """Number of response tokens, if a server gave no `token_ids`; else not written."""
    temperature: Temperature = 1.0
    """T at which the response was sampled. The behaviour policy of RewardFlow eq. 10 is
    softmax(logits / T).
    """
    logprob_temperature: Temperature = 1.0
    """T of the distribution that `logprobs` refer to. It equals `temperature`, or is 1
    for greedy responses and for endpoints that return log-probabilities before
    tempering.
    """
    redrawn: Count = 0
    """Number of responses discarded before this one because their action equalled a
    sibling's (rollout.distinct).
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
    """Exact state key before the action: states with the same key have the same future,
    whatever text was shown last.
    """
    next_state: str
    canonical: str | None = None
    """The papers' state before the action, f(s) of RewardFlow B.1: what the agent sees,
    plus what it must know but cannot see. None: the world has only `state`.
    """
    next_canonical: str | None = None
    next_observation: str
    next_pictures: Pictures = msgspec.UNSET
    """The pictures returned, for all copies that acted."""
    looked: bool = False
    """Whether the action only looked, according to the world. RewardFlow's graph leaves
    out such steps (RewardFlow B.2).
    """
    reward: Reward = 0.0
    """The environment's own reward for this step."""
    outcome: Outcome | None = None
    """Set on every leaf and on no other step."""
    error: str | None = None
    """What failed, if the outcome is errored."""
    mask: str | None = None
    """Why this step must not be imitated (noise in a demonstration), else None."""
    moves: list[Move] = []
    """The moves of a response that acts in several copies at once, at most one per
    copy; empty for a step in one environment. With moves, `action` is None, and
    observation, states and reward are joined from the copies.
    """
    value: Reward | None = None
    """A critic's V(s) before the action, if a critic was used."""
    score: Reward | msgspec.UnsetType = msgspec.UNSET
    """A process reward model's score of the response; not written without such a model.
    """
    notes: dict[str, float | str] = {}
    """Numbers and words that the exploration method recorded here, by name, for its
    credit method to read.
    """

    @property
    def request(self) -> tuple[str, Pictures]:
        """What the policy was asked. Equal texts may come with different pictures."""
        return self.prompt, self.pictures

    @property
    def tokens(self) -> int:
        """Number of tokens in the response."""
        if isinstance(self.generated_tokens, int):
            return self.generated_tokens
        return len(self.token_ids)


class Ledger(Record, kw_only=True):
    """The cost of a tree or of a whole stage, as counts."""

    leaves: Count = 0
    steps: Count = 0
    """Steps executed for the agent, malformed ones included. A shared prefix counts
    once. A step in several copies of the environment counts once per copy.
    """
    forks: Count = 0
    """Children beyond the first of every state other than the initial one."""
    siblings: Count = 0
    """Steps with a sibling, i.e. another step sampled at the same state, the initial
    state included.
    """
    distinct_siblings: Count = 0
    """Distinct actions among these steps, counted separately in each state.

    Equal to `siblings` if no sibling repeats another's action.
    """
    replayed_steps: Count = 0
    """Environment steps executed to restore states."""
    generated_tokens: Count = 0
    prompt_tokens: Count = 0
    shared_prompt_tokens: Count = 0
    """Prompt tokens that a prefix cache saves. A sibling after the first shares its
    whole prompt; a first child shares the tokens that its prompt and its parent's begin
    with. Endpoints do not report the latter, so for them this is a lower bound.
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
    """The task description that the agent was given."""
    method: str
    seed: int
    roots: Count | None = None
    """Number of trajectories started from the initial state before it was forked (M in
    spark, N0 in carl): its first children. None: the method does not distinguish them.
    """
    steps: list[Step]
    ledger: Ledger


INHERITED = "inherited"
"""The name of the part that holds an only child's inherited advantage.

If an only child has no advantage of its own, it inherits that of the step before (CARL
eq. 16).
"""


class StepCredit(Record, kw_only=True):
    """The credit of one training row.

    `advantage` is None if not assigned, with the reason in `masked`; 0.0 is an assigned
    zero. A step may occur several times (prefix: duplicate).
    """

    step: Position
    advantage: Reward | None
    parts: dict[str, float] = {}
    """The terms of the advantage and the values it was computed from, by name."""
    masked: str | None = None
    weight: Annotated[float, Meta(ge=0, le=1e6)] = 1.0


class GraphSize(Record, kw_only=True):
    """The size of a state graph (RewardFlow Table 9).

    An edge is an action between two states and is counted once, however often it was
    taken.
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
    """Size of the state graph that the credit was computed on, if there is one."""


class Episode(Record, kw_only=True):
    """One evaluated episode: a root-to-leaf path reduced to what metrics need."""

    schema_version: int = SCHEMA_VERSION
    task: str
    kind: str
    sample: Count
    """Index among the samples of this task, from 0."""
    outcome: Outcome
    score: Score
    """Sum of the environment's rewards; with several copies, the largest sum."""
    steps: Count
    """Number of responses."""
    moves: Count
    """Number of moves: a step in several copies of the environment counts once per
    copy.
    """
    tokens: Count
    repetitive_steps: Count
    """Moves that repeat an action taken earlier in the episode from the same state, in
    the same copy.
    """
    explore_steps: Count
    malformed_steps: Count
    inadmissible_steps: Count
    """Number of moves that the world refused."""
    error: str | None = None
    ledger: Ledger | None = None
    """The cost of all samples of this task; only on the first of them."""


class Panel(Record, kw_only=True):
    """A fixed, ordered list of tasks, and the SHA-256 of their newline-joined ids."""

    schema_version: int = SCHEMA_VERSION
    name: str
    world: str
    tasks: list[Task]
    sha256: str


class StageRecord(Record, kw_only=True):
    """The record of one stage, written when the stage finished."""

    command: list[str]
    settings: dict[str, Any]
    """The fully resolved settings of the command."""
    layers: list[str] = []
    """Where the settings come from, the lowest first: files, variables, options."""
    versions: dict[str, str]
    git_commit: str | None
    seed: int
    inputs: dict[str, str] = {}
    """SHA-256 of every file read, by path."""
    outputs: dict[str, str] = {}
    """The checksums of files written, by path in the run (checksums.py)."""
    panel: str | None = None
    """Hash of the panel, if the stage played one."""
    panel_name: str | None = None
    counts: dict[str, Count] = {}
    ledger: Ledger | None = None
    statistics: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    """wall, of all attempts; policy, environment, orchestration, ..., of the last."""
    started: str
    finished: str


class Manifest(Record, kw_only=True):
    """manifest.json of a run directory.

    It has one entry per finished stage, e.g. rollout, credit/grpo, train.
    """

    schema_version: int = SCHEMA_VERSION
    stages: dict[str, StageRecord] = {}


class TreeSeconds(Record, kw_only=True):
    """The seconds that a tree took: a line of seconds.jsonl.

    They are not part of the trees, so that the same seed gives the same trees.jsonl. A
    tree that was played again has two lines.
    """

    schema_version: int = SCHEMA_VERSION
    task: str
    """Task id of the tree."""
    policy: Seconds
    """Total time its requests waited for the policy, queueing and shared batches
    included. Requests that overlap are all counted.
    """
    environment: Seconds
    """Total time its steps waited for the engines; steps that overlap are all counted.
    """
    wall: Seconds
    """From its first request to its end."""
