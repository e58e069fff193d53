"""The settings of every stage, under the same names everywhere.

Presets, -c files and --set refer to these fields by path (rollout.leaves,
policy.temperature). Unknown fields are errors. Names include units. If the papers give
a value, it is the default (SPARK appendix B.4). Settings of a single exploration
method, credit method or world are defined next to that method or world, and reached
through `rollout`, `evaluation`, `credit` and `environment.options`.
"""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, field

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
    """The world, its tasks, and how its engines run."""

    name: str = "alfworld"
    """A built-in or installed world, or package.module:Class, or folder/file.py:Class."""
    data: str | None = None
    """Folder of the real data set. None: the folder where the world looks by default.
    """
    split: str | None = None
    """The split to play. None: the world's training split."""
    tasks: Count | None = None
    """Use only the first N tasks of the panel."""
    where: dict[str, list[str]] = field(default_factory=dict)
    """Keep tasks whose attribute (kind, room, ...) has one of these values."""
    panel: str | None = None
    """A panel file to use instead of a split."""
    shard: str | None = None
    """I/N: play only every N-th task of the panel, starting with the I-th (rollouts and
    evaluations). `agentcli merge` joins the N runs.
    """
    max_steps: Count = 30
    """Most steps per episode: the horizon K."""
    processes: Count = 1
    """Number of engine processes."""
    worker: list[str] = field(default_factory=list)
    """The command that starts an engine process, word by word, for instance [ssh, HOST,
    python, -m, agentcli.environments.engines.worker]. Empty: this Python.
    """
    deadline_seconds: Positive = 60.0
    """An engine call that takes longer is killed, and its leaf is errored."""
    most_text_bytes: Count = 2**20
    """Most bytes of an observation with its actions, or of a response. A longer one is
    not stored, and its leaf is errored.
    """
    options: dict[str, Any] = field(default_factory=dict)
    """The world's own settings (validated by the world)."""


class EndpointSettings(Section, kw_only=True):
    """A model behind a server that speaks the OpenAI protocol (policy.kind openai)."""

    base_url: str | None = None
    """Address of the server, e.g. http://localhost:8000/v1."""
    api_key_variable: str = "OPENAI_API_KEY"
    """Environment variable that contains the API key; the key itself is never a
    setting.
    """
    request_seconds: Positive = 120.0
    """Timeout of one attempt."""
    retries: CountFromZero = 6
    """Retries after a temporary error (429, 5xx, dropped connection, timeout), with
    increasing pauses.
    """
    requests_per_minute: Positive | None = None
    """Most requests started per minute. None: limited only by rollout.concurrency."""
    logprobs: Literal["raw", "processed"] = "raw"
    """Which log-probabilities the server returns. raw: of softmax(logits), as from vLLM
    and OpenAI. processed: of the sampling distribution, softmax(logits / temperature),
    as from vLLM started with --logprobs-mode processed_logprobs.
    """


class VllmSettings(Section, kw_only=True):
    """A vLLM engine started by agentcli (policy.kind vllm)."""

    replicas: Count = 1
    """Engines that answer side by side, each on tensor_parallel GPUs of its own. All
    requests of a task go to the same one.
    """
    tensor_parallel: Count = 1
    """GPUs that one model is split across."""
    gpu_memory_utilization: Share = 0.9
    """Share of a GPU's memory that the engine reserves."""
    max_model_len: Count | None = None
    """Longest prompt plus response, in tokens. None: policy.max_prompt_tokens plus
    policy.max_tokens, or the model's own limit if that is smaller.
    """
    sleep: Literal[0, 1, 2] = 1
    """What `run` does with the engine's GPU memory during training. 0: keeps it. 1:
    frees it and moves the weights to main memory. 2: frees it and later reads the
    weights from disk again; the base model of an adapter uses level 1.
    """
    options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of vLLM's AsyncEngineArgs, for instance {max_num_seqs: 256} or
    {kv_cache_dtype: fp8}; they replace what agentcli derives. In `run` the model cannot
    be quantised, because the engine must hold the trained weights.
    """


class ClusterSettings(Section, kw_only=True):
    """Where trees grow: in this process, or in workers of a Ray cluster."""

    on: str = "local"
    """local: in this process. ray: in workers on this machine. ray://HOST:PORT: in
    workers of a running cluster (docs/guides/machines.md). All of them produce the same
    trees.
    """
    workers: Count = 2
    """Number of workers; each has its own engines and models and plays
    rollout.concurrency tasks at a time.
    """
    gpus: NotNegative | None = None
    """GPUs per worker. None: one if the cluster has any and the worker loads a model.
    """

    @property
    def is_local(self) -> bool:
        """Whether trees grow in this process."""
        return self.on == "local"


class PolicySettings(Section, kw_only=True):
    """The policy that answers prompts."""

    trained: ClassVar[bool] = True
    """Whether a policy may later be trained on its responses."""

    kind: str = "transformers"
    """transformers, vllm, openai (a server), expert (follows a plan computed from the
    true state), search (an expert that has to find things), random.
    """
    model: str | None = None
    """A model directory, a hub id, or the name of a served model."""
    adapter: str | None = None
    """Directory of a PEFT adapter for the model."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto: the first GPU, else the CPU."""
    dtype: str = "auto"
    """Data type in which the model is loaded for sampling (float32, bfloat16, ...)."""
    temperature: NotNegative = 0.4
    """Sampling temperature; 0 is greedy."""
    max_tokens: Count = 512
    """Longest response, in tokens."""
    max_prompt_tokens: Count = 2048
    """A longer prompt is not sent to the model; rollout.overlong says what happens to
    its trajectory.
    """
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    """Values for the model's chat template, e.g. enable_thinking: false (Qwen3); also
    in `sft` and `train`. A server gets them with every request.
    """
    batching: Literal["exact", "fast"] | None = None
    """How prompts are batched. exact: a reply has the same bits whatever else is in its
    batch. fast: mixes prompts of all lengths and computes equal ones once, so replies
    may differ in the last bits. None: fast on a GPU (not bit-exact anyway), else exact.
    """
    batch_rows: Count = 64
    """Most requests in one generation batch."""
    linger_ms: NotNegative = 4.0
    """How long an incomplete batch waits for another request."""
    endpoint: EndpointSettings = field(default_factory=EndpointSettings)
    vllm: VllmSettings = field(default_factory=VllmSettings)


class AdvisorSettings(PolicySettings, kw_only=True):
    """A further model that is asked for help, and not trained."""

    trained: ClassVar[bool] = False

    temperature: NotNegative = 0.0
    """Sampling temperature; 0 is greedy."""


class PromptSettings(Section, kw_only=True):
    """How an observation becomes a prompt."""

    style: str | None = None
    """full: the papers' prompt. shared: the same with the constant part first, for
    prefix caches and packed training. react: alternating thought and action. compact:
    the world's own short view (for tiny policies). chat: a conversation that grows by
    one message a step, and chat-compact the same of short views. None: the default for
    the world.
    """
    history: CountFromZero = 5
    """Number of past (observation, action) pairs in the prompt."""
    tools: Literal["text", "native"] = "text"
    """chat, in a world with named tools. text: calls in the form of the world's own
    dialect. native: the chat template shows the tools' schemas, calls are JSON as Qwen,
    Hermes, Llama 3 and endpoints write them, and results are messages of the role tool.
    """
    keep_thinking: bool | None = None
    """chat: what becomes of earlier thoughts where the chat template leaves them out.
    true: they stay as they were sampled, so that every prompt continues the one before.
    false: the template writes every prompt anew, and nothing is shared. None: such a
    template is refused.
    """
    restart: Annotated[int, Meta(ge=2, le=1_000_000_000)] | None = None
    """chat: after so many steps, two at least, the conversation begins anew, with a
    line that names the actions so far. None: never.
    """
    names: Literal["own", "typed"] = "own"
    """own: the world's own names. typed: placeholders by type (locker 3 for a drawer),
    so that unseen rooms hold no unknown words; with the compact style, in a world that
    has them (alfworld). The policy answers in them, too.
    """


REFUTED = "refuted"
ExploreTags = Literal["refuted"] | Annotated[tuple[Share, ...], Meta(min_length=1)]


class DemosSettings(Section, kw_only=True):
    """Demonstrations, and the faults that are added to them on purpose."""

    count: Count = 300
    """Number of episodes to write."""
    policy: str = "search"
    """The policy that plays; any policy kind."""
    noise: Share = 0.0
    """Share of steps at which a random admissible action is executed instead; these
    steps are masked, so they are not imitated.
    """
    stray: Share = 0.0
    """Share of steps before which an inadmissible action is tried (a repetition, or an
    object from another room); never imitated.
    """
    forget: Share = 0.0
    """Share of episodes in which the expert leaves out a step that the task needs. This
    and the next two are habits of the world's expert (environments/*/tutor), which may
    count them in another way.
    """
    overlook: Share = 0.0
    """Share of hidden places that the expert passes without looking."""
    wander: Share = 1.0
    """Share of episodes in which the expert visits places in a random order; otherwise
    it follows the order of the commands.
    """
    explore: ExploreTags = (1.0,)
    """Chance that a search move is tagged <explore>, in the steps 1 to 5, 6 to 10, and
    so on; the last one holds for all later steps. refuted: a search move is tagged if
    the move before it looked somewhere in vain. SPARK's demonstrations have few tags
    (its Table 9), so that forks are left for later steps.
    """
    keep: Literal["all", "success"] = "success"
    """Which episodes are written. With success, `demos` gives up after 20 episodes for
    each demonstration wanted and for each task; at most 20 tasks count.
    """


class RolloutSettings(Section, kw_only=True):
    """How trees grow, with any method.

    Settings of a single method are in a subclass, defined next to it
    (agentcli/exploration/).
    """

    alone: ClassVar[str] = "chain"
    """The method for single trajectories of a policy that was trained with this method.
    """
    numbered: ClassVar[bool] = False
    """Whether responses number the copies of the environment that they act in."""
    replaces: ClassVar[bool] = False
    """Whether another action may be run than a response names."""
    redraws: ClassVar[bool] = True
    """Whether the method supports `distinct`."""
    bounded: ClassVar[bool] = True
    """Whether a tree has `leaves` leaves at most."""
    capability: ClassVar[type | None] = None
    """The interface that a world must have for this method (environments/protocol.py).
    """

    method: str = "chain"
    """How trees grow: the name of an exploration method."""
    leaves: Count = 8
    """Most leaves of a tree, N. chain samples exactly N independent trajectories: the
    group size G.
    """
    distinct: CountFromZero = 0
    """How often a child may be resampled because its action equals a sibling's. 0:
    never. The cost is counted; the stored log-probabilities are still the policy's own
    (exploration/distinct.py). Not used in evaluations and demonstrations.
    """
    overlong: Literal["error", "failure"] = "error"
    """What to do with a prompt longer than policy.max_prompt_tokens. error: the leaf is
    errored, excluded from statistics and played again by --resume. failure: the task
    has failed (DPEPO A.4).
    """
    deadline_seconds: Positive | None = None
    """Wall-clock limit per tree. Results then depend on timing: the same seed no longer
    gives the same bytes.
    """
    minimum_leaves: Count = 2
    """A tree stopped by its deadline is kept, without its unfinished leaves, if it has
    this many finished ones. Otherwise its unfinished leaves are errored.
    """
    most_errored: Share = 0.1
    """Largest share of leaves that may be errored, in rollouts, evaluations and
    demonstrations. Above it, the command writes everything and then fails.
    """
    budget: str | None = None
    """tokens=N (generated), steps=N or leaves=N: stop when the trees, in panel order,
    have cost this much. A tree is kept if the trees before it cost less. Each task is
    played at most once. groups=N: stop after N trees with a success and a failure, in
    an iteration after tasks_per_step trees at the latest. With train.update=spread this
    is the dynamic sampling of DAPO: groups without spread are replaced, and their cost
    is counted.
    """
    concurrency: Count = 32
    """Number of tasks played at the same time."""
    critic: str | None = None
    """Directory of a critic that computes V(s) for every step of a rollout (Step.value,
    read by credit ppo). A model without a critic head gets a new head: every value is
    0.
    """
    prm: str | None = None
    """Directory or hub id of a process reward model that scores every step of a rollout
    (Step.score, read by credit grpo-prm).
    """
    parser: AdvisorSettings | None = None
    """A model that rewrites an unreadable response in the required form (Rare-tool
    section 3.1), in rollouts and evaluations; such steps have the note `parsed`. None:
    the response stays malformed.
    """
    answer_judge: AdvisorSettings | None = None
    """A model that judges whether an answer is right (CARL App. C.4), in rollouts and
    evaluations. Its verdict is the outcome; the world's reward does not change. None:
    the world decides.
    """
    tasks_per_step: Count = 16
    """Tasks per iteration of `run` (and of `rollout --iteration`)."""
    iteration: CountFromZero | None = None
    """Play the tasks of this iteration of `run`, with its seed."""

    @property
    def moves_per_step(self) -> int:
        """How many actions one response may contain."""
        return 1

    def most(self, steps: int) -> tuple[int, int]:
        """The most leaves and responses of a tree, with `steps` in a trajectory."""
        return self.leaves, self.leaves * steps

    @property
    def draws(self) -> int:
        """The most responses that are sampled for one that is executed."""
        # A response that repeats a sibling's action is drawn again, and costs each time.
        return 1 + self.distinct

    @property
    def needs_chance(self) -> str:
        """Why greedy responses are of no use to the method; "" if they are."""
        return ""

    @property
    def further_models(self) -> dict[str, PolicySettings]:
        """The models that the method uses besides the policy, by setting name.

        Settings that are None are left out.
        """
        models = {}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, PolicySettings):
                models[name] = value
        return models

    @property
    def remark(self) -> str:
        """What a user should know who left settings at their defaults; else ""."""
        return ""

    def check(self) -> None:
        """Raises UsageError for values that are valid alone but not together."""


class EvaluationSettings(Section, kw_only=True):
    """Evaluation of whole panels, each episode played once.

    The sampling methods of evaluations add their settings here: evaluation.vote,
    evaluation.copies (agentcli/exploration/settings.py).
    """

    split: str | None = None
    """The split to evaluate. L0: new games in rooms seen in training. L1: in unseen
    rooms. L2: in unseen rooms, and only kinds of tasks that L2-train leaves out. None:
    the world's default.
    """
    tasks: Count | None = None
    """Use only the first N tasks of the panel."""
    samples: Count = 1
    """Episodes per task."""
    temperature: NotNegative | None = None
    """Sampling temperature; 0 is greedy. None: policy.temperature."""
    label: str | None = None
    """Name of the files in evaluation/. None: the name of the split."""
    n: Count = 32
    """pass-at-k: samples per task, n."""
    k: Count = 16
    """pass-at-k: attempts allowed, k."""
    budget: str | None = None
    """Like rollout.budget: tasks are played in panel order until this much is spent."""
    trees: Literal["all", "failed", "none"] = "all"
    """Which trees are kept in evaluation/trees/, for `agentcli show`. failed: trees
    with a trajectory that did not succeed.
    """


class TrackingSettings(Section, kw_only=True):
    """Where metrics and some trajectories are sent, besides metrics.jsonl."""

    to: list[Literal["tensorboard", "wandb", "trackio", "mlflow"]] = field(
        default_factory=list
    )
    """Names of the trackers."""
    project: str = "agentcli"
    """Project name, for trackers that have projects."""
    name: str | None = None
    """Name of the tracked run. None: the name of the run directory."""
    samples: CountFromZero = 3
    """Number of trajectories of every rollout that trackers show as text."""


class RunSettings(Section, kw_only=True):
    """The loop of rollout, assign-credit and train."""

    iterations: Count = 120
    """Number of iterations."""
    keep: Count | None = 2
    """Iterations whose weights and optimiser state are kept: the newest ones, and the
    best one by the loop's evaluations. None: all.
    """
    processes: Count = 1
    """Processes that train an iteration, one GPU each: DDP, or FSDP2 with
    train.sharding. Losses change only by rounding.
    """
    train_in: Literal["auto", "process", "child"] = "auto"
    """Where an iteration is trained. process: in the loop's own. child: in a process of
    its own, whose end frees the GPU for sampling. auto: child on a GPU, or where
    run.processes is above 1.
    """
    evaluate_every: Count | None = None
    """Evaluate the policy after every N-th iteration and after the last, as `eval`
    does, with the settings of `evaluation`. None: never.
    """
    unreadable: Literal["end", "continue"] = "end"
    """After an iteration in which no response could be read, and nothing was learned.
    end: the loop ends with an error, and again with --resume. continue: it goes on, as
    the loops of a study do, where a policy that forgot how to answer is a result.
    """


class Settings(Section, kw_only=True):
    """All settings of one command, fully resolved."""

    seed: Seed = 0
    """All random numbers derive from this seed."""
    environment: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    prompt: PromptSettings = field(default_factory=PromptSettings)
    demos: DemosSettings = field(default_factory=DemosSettings)
    sft: SftSettings = field(default_factory=SftSettings)
    rollout: RolloutSettings = field(default_factory=RolloutSettings)
    credit: dict[str, Any] = field(default_factory=lambda: {"method": "grpo"})
    """`method`, and the settings of that method."""
    train: TrainSettings = field(default_factory=TrainSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    run: RunSettings = field(default_factory=RunSettings)
    tracking: TrackingSettings = field(default_factory=TrackingSettings)
    threads: Count = 1
    """Number of torch threads per process."""

    @property
    def in_flight(self) -> int:
        """Tasks played at the same time, over all processes that grow trees."""
        processes = 1 if self.cluster.is_local else self.cluster.workers
        return processes * self.rollout.concurrency
