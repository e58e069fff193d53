"""The settings of every stage: one vocabulary, one place.

A preset, a -c file and --set all speak of these fields by path (rollout.leaves,
policy.temperature). Unknown fields are errors. Units stand in names. Defaults are the
papers' (SPARK appendix B.4) where they name a value. What belongs to one exploration
method, one credit method or one world stands beside it. Those settings are reached
through `rollout`, `evaluation`, `credit` and `environment.options`.
"""

from typing import Any, ClassVar, Literal

from msgspec import field

from agentcli.records.section import (
    Count,
    CountFromZero,
    NotNegative,
    Positive,
    Section,
    Seed,
    Share,
)
from agentcli.records.training_settings import SftSettings, TrainSettings


class EnvironmentSettings(Section, kw_only=True):
    """Which world, which tasks, how the engines run."""

    name: str = "alfworld"
    """A built-in or installed world, or package.module:Class, or folder/file.py:Class."""
    data: str | None = None
    """Folder of the real data set; None: where the world itself looks for one."""
    split: str | None = None
    """None: the split that the world is trained on."""
    tasks: Count | None = None
    """Only the panel's first N tasks."""
    where: dict[str, list[str]] = field(default_factory=dict)
    """Keep tasks whose attribute (kind, room, ...) is one of these."""
    panel: str | None = None
    """A panel file, instead of a split."""
    shard: str | None = None
    """I/N: only every N-th task of the panel, from its I-th on (rollout and
    evaluations); `agentcli merge` joins the N runs.
    """
    max_steps: Count = 30
    """Horizon K: steps per episode."""
    processes: Count = 1
    """Engine processes."""
    deadline_seconds: Positive = 60.0
    """An engine call that takes longer is killed and becomes an errored leaf."""
    options: dict[str, Any] = field(default_factory=dict)
    """The world's own settings (validated by the world)."""


class EndpointSettings(Section, kw_only=True):
    """A served model that speaks the OpenAI protocol (policy.kind openai)."""

    base_url: str | None = None
    """For instance http://localhost:8000/v1."""
    api_key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; the key itself is never a setting.
    """
    request_seconds: Positive = 120.0
    """Deadline of one attempt."""
    retries: CountFromZero = 6
    """Further attempts after a refusal that may pass (429, 5xx, a cut connection, a
    deadline), each after a longer pause.
    """
    requests_per_minute: Positive | None = None
    """Most requests started in a minute; None: as many as rollout.concurrency allows.
    """
    logprobs: Literal["raw", "processed"] = "raw"
    """The distribution of the server's log-probabilities. raw: softmax(logits), as vLLM
    and OpenAI return. processed: the one that was sampled from, softmax(logits /
    temperature), as vLLM returns when started with --logprobs-mode processed_logprobs.
    """


class VllmSettings(Section, kw_only=True):
    """The engine of vLLM that is started here (policy.kind vllm)."""

    tensor_parallel: Count = 1
    """GPUs that one model is spread over."""
    gpu_memory_utilization: Share = 0.9
    """Share of a GPU's memory that the engine takes."""
    max_model_len: Count | None = None
    """Longest prompt with its response, in tokens. None: policy.max_prompt_tokens and
    policy.max_tokens together, or what the model is made for where that is less.
    """
    sleep: Literal[0, 1, 2] = 1
    """What `run` does with the engine's memory on the GPU while it trains. 0: keeps it.
    1: frees it, and moves the weights to main memory. 2: frees it, and reads the
    weights from disk again; the base of an adapter sleeps at 1.
    """


class ClusterSettings(Section, kw_only=True):
    """Where trees grow: in this process, or in workers of a Ray cluster."""

    on: str = "local"
    """local: in this process. ray: in workers on this machine. ray://HOST:PORT: in workers
    of a running cluster (docs/guides/machines.md). Trees are the same anywhere.
    """
    workers: Count = 2
    """Workers, each with engines and models of its own, and rollout.concurrency tasks in
    flight.
    """
    gpus: NotNegative | None = None
    """GPUs of a worker. None: one where the cluster has any and the worker loads a model.
    """

    @property
    def is_local(self) -> bool:
        """Whether trees grow in this process."""
        return self.on == "local"


class PolicySettings(Section, kw_only=True):
    """Who answers a prompt."""

    trained: ClassVar[bool] = True
    """Whether training may want to learn from its responses."""

    kind: str = "transformers"
    """transformers, vllm, openai (an endpoint), expert (a plan from the true state),
    search (an expert without knowledge of places), random.
    """
    model: str | None = None
    """A model directory, a hub id, or the name of a served model."""
    adapter: str | None = None
    """Directory of a PEFT adapter on top of the model."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto: the first GPU, else the CPU."""
    dtype: str = "auto"
    """Number type that the model is loaded in to sample (float32, bfloat16, ...)."""
    temperature: NotNegative = 0.4
    """0 is greedy."""
    max_tokens: Count = 512
    """Longest response, in tokens."""
    max_prompt_tokens: Count = 2048
    """A longer prompt is not answered; rollout.overlong says what becomes of its
    trajectory.
    """
    batching: Literal["exact", "fast"] | None = None
    """How prompts share a batch. exact: a reply is the same bits in any company. fast:
    prompts of any length come together and equal ones are read once, so replies differ
    in the last bits. None: fast on a GPU, which promises no bits anyway, else exact.
    """
    batch_rows: Count = 64
    """Most requests generated together."""
    linger_ms: NotNegative = 4.0
    """How long a batch that is not full waits for one more request."""
    endpoint: EndpointSettings = field(default_factory=EndpointSettings)
    vllm: VllmSettings = field(default_factory=VllmSettings)


class AdvisorSettings(PolicySettings, kw_only=True):
    """A model that is asked beside the policy, and not trained."""

    trained: ClassVar[bool] = False

    temperature: NotNegative = 0.0
    """0 is greedy."""


class PromptSettings(Section, kw_only=True):
    """How an observation becomes a message."""

    style: str | None = None
    """full: the papers' prompt. shared: the same with what stays the same first, for
    prefix caches and packed training. react: thought and action in turn. compact: the world's
    own short view (for tiny policies). None: the one that suits the world.
    """
    history: CountFromZero = 5
    """Past (observation, action) pairs shown."""


class DemosSettings(Section, kw_only=True):
    """Demonstrations and what is wrong with them on purpose."""

    count: Count = 300
    """Episodes written."""
    policy: str = "search"
    """Any policy kind."""
    noise: Share = 0.0
    """Share of steps at which a random admissible action is executed instead; masked
    for imitation.
    """
    stray: Share = 0.0
    """Share of steps before which an inadmissible action (a repeat, a thing of another
    room) is tried; never imitated.
    """
    forget: Share = 0.0
    """Share of episodes in which the tutor leaves out a step that the task needs. This
    and the next two are habits of the world's tutor (environments/*/tutor).
    """
    overlook: Share = 0.0
    """Share of hidden places that the tutor passes by without looking."""
    wander: Share = 1.0
    """Share of episodes in which the tutor visits places in an order of their own; else
    it follows the order of the commands.
    """
    keep: Literal["all", "success"] = "success"
    """Which episodes are written."""


class RolloutSettings(Section, kw_only=True):
    """How trees grow, whatever the method.

    A method's own settings are a subclass beside it (agentcli/exploration/).
    """

    alone: ClassVar[str] = "chain"
    """The method that samples a single trajectory of the policy that this one trains.
    """
    numbered: ClassVar[bool] = False
    """Whether responses name the copies of the environment that they act in."""
    redraws: ClassVar[bool] = True
    """Whether the method takes part in `distinct`."""
    capability: ClassVar[type | None] = None
    """What the method needs a world to be (environments/protocol.py)."""

    method: str = "chain"
    """How trees grow: the name of an exploration method."""
    leaves: Count = 8
    """Leaf budget N of a tree. chain samples exactly N independent trajectories: the
    group size G.
    """
    distinct: CountFromZero = 0
    """Most times that a child is sampled again because its action is a sibling's. 0:
    never. Its cost is charged; the stored log-probabilities stay the policy's own
    (exploration/distinct.py). Evaluations and demonstrations sample without it.
    """
    overlong: Literal["error", "failure"] = "error"
    """A prompt longer than policy.max_prompt_tokens. error: an errored leaf, which no
    statistic counts and --resume owes again. failure: the task has failed (004 A.4).
    """
    deadline_seconds: Positive | None = None
    """Wall clock of one tree. With it a file depends on timing: the same seed no longer
    means the same bytes.
    """
    minimum_leaves: Count = 2
    """A tree that the deadline cuts is kept with what is finished from this many leaves
    on, else its open leaves are errored.
    """
    most_errored: Share = 0.1
    """Largest share of leaves that may be errored, in rollouts, evaluations and
    demonstrations. With more the command writes everything and then fails.
    """
    budget: str | None = None
    """tokens=N (generated), steps=N or leaves=N: the rollout ends when its trees, in
    the panel's order, have cost this. A tree counts if less was spent before it; the
    panel is walked once.
    """
    concurrency: Count = 32
    """Tasks in flight."""
    critic: str | None = None
    """Directory of a critic, which gives V(s) of every step (Step.value; credit ppo
    reads it). Of a model that is no critic's every value is 0. Only rollouts ask it.
    """
    prm: str | None = None
    """Directory or hub id of a process reward model, which scores every step
    (Step.score; credit grpo-prm reads it). Only rollouts ask it.
    """
    parser: AdvisorSettings | None = None
    """A model that writes a response that cannot be read again in the form that was
    asked for (001 section 3.1), in rollouts and evaluations; such steps have the note
    `parsed`. None: it stays malformed.
    """
    answer_judge: AdvisorSettings | None = None
    """A model that says whether an answer is right (003 App. C.4), in rollouts and
    evaluations: its verdict is the outcome, and the world's reward stays. None: the
    world decides.
    """
    tasks_per_step: Count = 16
    """Tasks of one iteration of `run` (and of `rollout --iteration`)."""
    iteration: CountFromZero | None = None
    """Take the slice of the panel that this iteration of `run` takes, with its seed."""

    @property
    def moves_per_step(self) -> int:
        """How many actions one response may hold."""
        return 1

    @property
    def further_models(self) -> dict[str, PolicySettings]:
        """The models that the method asks besides the policy, by their setting's name.

        One that is None is left out.
        """
        models = {}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, PolicySettings):
                models[name] = value
        return models

    def check(self) -> None:
        """Raises UsageError for values that are good by themselves and not together."""


class EvaluationSettings(Section, kw_only=True):
    """Whole panels, each episode once.

    The settings of the methods that evaluations sample with stand here too:
    evaluation.vote, evaluation.copies (agentcli/exploration/settings.py).
    """

    split: str | None = None
    """None: the world's own. L0: new games in rooms of the training; L1: in other rooms;
    L2: there, with kinds of tasks that L2-train leaves out.
    """
    tasks: Count | None = None
    """Only the panel's first N tasks."""
    samples: Count = 1
    """Episodes per task."""
    temperature: NotNegative | None = None
    """None: policy.temperature. 0 is greedy."""
    label: str | None = None
    """Name of the files in evaluation/; None: the split."""
    n: Count = 32
    """pass-at-k: samples per task."""
    k: Count = 16
    """pass-at-k: attempts allowed."""
    budget: str | None = None
    """Like rollout.budget: the panel's tasks are walked until so much is spent."""
    trees: Literal["all", "failed", "none"] = "all"
    """Trees that are kept in evaluation/trees/, for `agentcli show`. failed: those with
    a trajectory that did not succeed.
    """


class TrackingSettings(Section, kw_only=True):
    """Where metrics go besides metrics.jsonl, with some of the trajectories."""

    to: list[Literal["tensorboard", "wandb", "trackio"]] = field(default_factory=list)
    """The trackers."""
    project: str = "agentcli"
    """Project of the trackers that have projects."""
    name: str | None = None
    """None: the run directory's name."""
    samples: CountFromZero = 3
    """Trajectories of every rollout that trackers show as text."""


class RunSettings(Section, kw_only=True):
    """The loop rollout -> assign-credit -> train."""

    iterations: Count = 120
    """Times round the loop."""
    keep: Count | None = 2
    """Iterations whose weights and optimiser stay: the newest ones, and the best by the
    loop's evaluations. None: all.
    """
    evaluate_every: Count | None = None
    """Evaluate the policy after every N-th iteration and after the last, as `eval`
    would, by the settings of `evaluation`. None: never.
    """


class Settings(Section, kw_only=True):
    """Everything one command may need, fully resolved."""

    seed: Seed = 0
    """Every random draw derives from it."""
    environment: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    prompt: PromptSettings = field(default_factory=PromptSettings)
    demos: DemosSettings = field(default_factory=DemosSettings)
    sft: SftSettings = field(default_factory=SftSettings)
    rollout: RolloutSettings = field(default_factory=RolloutSettings)
    credit: dict[str, Any] = field(default_factory=lambda: {"method": "grpo"})
    """`method` and that method's own settings."""
    train: TrainSettings = field(default_factory=TrainSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    run: RunSettings = field(default_factory=RunSettings)
    tracking: TrackingSettings = field(default_factory=TrackingSettings)
    threads: Count = 1
    """torch threads per process."""

    @property
    def in_flight(self) -> int:
        """Tasks in flight, in all processes that grow trees."""
        processes = 1 if self.cluster.is_local else self.cluster.workers
        return processes * self.rollout.concurrency
