"""annotate: a teacher adds reasoning, with its tag, to existing trajectories.

This is `demos --annotate` (SPARK App. B.4). It annotates the steps that could be
imitated: valid and not masked. The response becomes the tag, the teacher's sentence and
the unchanged action; sampled tokens are removed, an empty prompt is rendered, and the
rest stays. A step without a usable answer keeps its response and is masked, so that the
other steps of its trajectory can still be used; if no step gets an answer, that is an
error. A trajectory for which the teacher could not be asked is left out and counted;
--resume asks again.

The requests for a tree depend only on the tree and the seed, and the trees come in the
order of the input: if the teacher is deterministic, an interrupted and an uninterrupted
annotation give the same bytes.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.protocol import Context, Picture, World
from agentcli.environments.registry import make_world
from agentcli.errors import AgentCliError, DataError, PolicyError, UsageError
from agentcli.policies.protocol import Policy, Request, reply_within
from agentcli.policies.registry import MODEL_FREE
from agentcli.prompts.full import Full
from agentcli.prompts.protocol import Answer, Dialect, Message, Moment
from agentcli.prompts.registry import make_dialect
from agentcli.prompts.tagged import REASONING_TAGS
from agentcli.records.faults import one_line
from agentcli.records.files import derive_seed, read_records
from agentcli.records.pictures import folder_beside, read_picture, read_pictures
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.trees import path
from agentcli.records.types import (
    Ledger,
    Outcome,
    StageRecord,
    Step,
    StopReason,
    Tree,
    Validity,
)
from agentcli.reports.standing import Standing
from agentcli.stages.backend import LocalBackend, harvest, in_order
from agentcli.stages.plan import StagePlan, check_model, model_sources, with_changes
from agentcli.stages.sampling import Stopwatch, check_policy
from agentcli.stages.session import Session
from agentcli.stages.tally import counted, excerpt
from agentcli.stages.trees import checked_trees, write_in_order

Key = tuple[str, int]
"""A hash of what annotation does not change of a tree, and which of its equals it is."""
INTERVAL = 5
"""Steps per row of the paper's Table 9."""
REQUEST = """\
The action at this moment is already decided, only the reasoning is missing. The \
action is:
{action}

Write the reasoning that leads to this very action: one short sentence in the agent's \
own voice, about nothing that it cannot
know yet. Choose <explore> only where it lacks something that it has to find out, or \
where the last result is not what it
expected; otherwise <think>. Answer in the form above, with this action word for \
word."""


@dataclass(frozen=True, kw_only=True)
class AnnotationPlan(StagePlan):
    """An annotation that is ready to begin."""

    trees: Path
    """The trees to annotate."""
    world: World
    model: str | None

    def counts(self) -> dict[str, int]:
        """The number of trees to annotate."""
        return {"trees": sum(1 for _ in given_trees(self.trees, self.world))}


def plan(
    settings: Settings,
    source: Path,
    out: Path,
    *,
    model: str | None,
) -> AnnotationPlan:
    """Plans to annotate the trees of the run `source` and write them to `out`.

    The teacher is the policy of settings.demos.policy. Raises what `check_teacher`
    raises, UsageError for an unknown policy, and DataError if there are no trees.
    """
    trees = RunDirectory(source).existing_trees()
    check_teacher(settings, source, out)
    teacher = settings.demos.policy
    world = make_world(settings.environment)
    check_policy(settings, teacher)
    check_model(model)
    policy = {"kind": teacher, "model": model or settings.policy.model}
    run = RunDirectory(out)
    return AnnotationPlan(
        stage="annotate",
        run=run,
        settings=with_changes(settings, policy=policy),
        sections=("policy", "prompt"),
        conditions={"world": world.card.name},
        inputs={"annotate": trees, "model": model},
        sources=[trees, *model_sources(model)],
        outputs=[run.trees],
        trees=trees,
        world=world,
        model=model,
    )


async def perform(plan: AnnotationPlan, session: Session) -> StageRecord:
    """Writes the annotated trees.

    Raises DataError for a file without trees and for trees of another world, and
    AgentCliError if no trajectory could be annotated or no step got a usable answer.
    """
    source = plan.trees
    trees = plan.run.trees
    keys = list(map(numbering(), given_trees(source, plan.world)))
    kept = set[Key]()
    if session.resumed:
        kept = set(map(numbering(), read_records(trees, Tree)))
        if kept.difference(keys):
            raise DataError(
                f"{trees}: holds trees that are not in {source}; choose another -o DIR, "
                "or use --overwrite"
            )
    if session.done and len(kept) == len(keys):
        return session.nothing_owed(session.done)
    if session.resumed:
        _sort(trees, keys)
    problems, unusable, seconds = await _ask(plan, session, len(keys), kept)
    example = "" if unusable is None else f", for instance {excerpt(unusable)!r}"
    # Not by the file: with --overwrite it has another teacher's trees until one is new.
    if len(problems) == len(keys):
        raise AgentCliError(
            f"no trajectory of {source} could be annotated: {problems[0]}"
        )
    _sort(trees, keys)
    counts, statistics = _summary(trees, len(keys))
    lacking = counts[NOT_ANNOTATED]
    if lacking and not counts["annotated"]:
        raise AgentCliError(
            f"no step of {source} got a usable answer ({lacking} asked for{example}); "
            "name another teacher with --policy and --model, or a higher "
            "policy.max_tokens, and use --overwrite"
        )
    if lacking:
        asked = counts["annotated"] + lacking
        session.progress.note(
            f"{lacking} of {asked} steps got no usable answer and are masked{example}"
        )
    if problems:
        session.progress.note(
            f"{counts['owed']} trajectories are owed, --resume asks again; the first: "
            f"{problems[0]}"
        )
    return session.finish(
        latest=True,
        counts=counts,
        statistics=statistics,
        ledger=counted(trees)[0].ledger,
        seconds=seconds,
    )


def check_teacher(settings: Settings, source: Path, out: Path) -> None:
    """Raises UsageError if the policy reads no prompts, or if `out` is in `source`."""
    teacher = settings.demos.policy
    if teacher in (*MODEL_FREE, "demonstrator"):
        raise UsageError(
            f"demos --annotate: {teacher} answers no prompts; name a teacher: "
            "--policy openai or transformers"
        )
    if source.resolve() == out.resolve():
        raise UsageError(
            f"demos --annotate {source}: cannot be written into itself; choose "
            "another -o DIR"
        )


class Annotated(NamedTuple):
    """A tree with reasoning, or the reason why there is none."""

    tree: Tree | None
    problem: str = ""

    @property
    def success(self) -> None:
        """None: annotation does not change the outcome of a trajectory."""
        return None


async def _ask(
    plan: AnnotationPlan,
    session: Session,
    total: int,
    kept: set[Key],
) -> tuple[list[str], str | None, dict[str, float]]:
    """Annotates the trees that are not done yet.

    Returns why trees could not be, an unusable answer if there is any, and the time
    spent by part.
    """
    folder = folder_beside(plan.trees)
    settings = plan.settings
    # A teacher steps no environment, so these engines are never started.
    pool = EnginePool(settings.environment)
    backend = LocalBackend(pool, keeps=False)
    problems: list[str] = []
    async with backend.policy(settings, plan.world, plan.model) as policy:
        watch = Stopwatch(pool, policy)
        teacher = Teacher(policy, plan.world, settings, folder)

        async def annotate(tree: Tree) -> Annotated:
            try:
                return Annotated(await teacher.annotate(tree, _hash(tree)))
            except PolicyError as error:
                return Annotated(None, str(error))

        with session.appending(plan.run.trees) as write:

            def store(annotated: Annotated) -> bool:
                if annotated.tree is None:
                    problems.append(annotated.problem)
                    return False
                session.keep_pictures(read_pictures(folder, annotated.tree))
                write(annotated.tree)
                return True

            title = f"annotating ({settings.policy.kind})"
            concurrency = settings.rollout.concurrency
            standing = Standing(title, total, len(kept), together=concurrency)
            # A second pass over the same file: equal trees are numbered from 1 again.
            key_of = numbering()
            given = read_records(plan.trees, Tree)
            owed = (tree for tree in given if key_of(tree) not in kept)
            results = in_order(owed, annotate, concurrency)
            await harvest(session.progress, standing, results, store)
        return problems, teacher.unusable, watch.seconds()


def numbering() -> Callable[[Tree], Key]:
    """A function that gives the trees of one file, in order, their keys."""
    times = Counter[str]()

    def key_of(tree: Tree) -> Key:
        unchanged = _hash(tree)
        # Equal trees are told apart by their number.
        times[unchanged] += 1
        return unchanged, times[unchanged]

    return key_of


def _hash(tree: Tree) -> str:
    """A hash of everything that annotation does not change."""
    replace = msgspec.structs.replace
    steps = []
    for step in tree.steps:
        blank = without_tokens(step)
        steps.append(replace(blank, prompt="", response="", tag=None, mask=None))
    bare = replace(tree, steps=steps, ledger=Ledger())
    return hashlib.blake2b(msgspec.json.encode(bare), digest_size=16).hexdigest()


def given_trees(source: Path, world: World) -> Iterator[Tree]:
    """Streams the trees of a file.

    Raises what `checked_trees` raises, and DataError for a tree of another world.
    """
    name = world.card.name
    for line, tree in checked_trees(source, "demos"):
        if tree.task.world != name:
            raise DataError(
                f"{source}:{line}: task.world: is {tree.task.world!r}, "
                f"environment.name is {name!r}; name the world of these trees with "
                "--env or --preset"
            )
        yield tree


def _sort(trees: Path, keys: Sequence[Key]) -> None:
    """Sorts annotated trees in the order of `keys`, and drops a torn last line."""
    decode = msgspec.json.Decoder(Tree).decode
    key_of = numbering()
    write_in_order([trees], keys, trees, lambda line: key_of(decode(line)))


def _summary(
    trees: Path,
    wanted: int,
) -> tuple[dict[str, int], dict[str, Any]]:
    """Counts of trees and steps, and the share of <explore> (SPARK Table 9).

    The share is over the annotated steps, by their position in the trajectory.
    """
    counts = {
        "trees": 0,
        "owed": 0,
        "steps": 0,
        "annotated": 0,
        "explore": 0,
        NOT_ANNOTATED: 0,
        "left": 0,
    }
    annotated = Counter[int]()
    explore = Counter[int]()
    for tree in read_records(trees, Tree):
        counts["trees"] += 1
        for step in tree.steps:
            counts["steps"] += 1
            if not imitable(step):
                counts["left"] += 1
            elif step.mask == NOT_ANNOTATED:
                counts[NOT_ANNOTATED] += 1
            else:
                interval = (len(path(tree, step)) - 1) // INTERVAL
                annotated[interval] += 1
                explore[interval] += step.tag == "explore"
    counts["owed"] = wanted - counts["trees"]
    counts["annotated"] = annotated.total()
    counts["explore"] = explore.total()
    shares = {}
    for number in sorted(annotated):
        first = INTERVAL * number + 1
        last = INTERVAL * (number + 1)
        share = explore[number] / annotated[number]
        shares[f"{first}-{last}"] = round(share, 4)
    return counts, {"explore_by_step": shares}


ASKS = 3
"""How often the teacher is asked before a step is given up."""
NOT_ANNOTATED = "not annotated"
"""The mask of a step for which the teacher gave no usable answer."""


class Teacher:
    """Annotates trees with the answers of a policy.

    `pictures` is the folder with the pictures of the trees.
    """

    def __init__(
        self,
        policy: Policy,
        world: World,
        settings: Settings,
        pictures: Path,
    ) -> None:
        self._policy = policy
        self._settings = settings
        self._pictures = pictures
        self._agent = make_dialect(settings.prompt, world)
        """The dialect in which the annotated steps are written."""
        self._full = Full(settings.prompt, world)
        """The dialect in which the teacher is asked."""
        self.unusable: str | None = None
        """One of the unusable answers for which a step was given up."""

    async def annotate(self, tree: Tree, key: str) -> Tree:
        """Annotates all steps of a tree, with seeds derived from `key`.

        The teacher's tokens are added to the tree's ledger. Raises PolicyError if the
        teacher could not be asked.
        """
        ledger = Ledger()
        jobs = (self._step(tree, step, key, ledger) for step in tree.steps)
        # All are awaited before the first error is raised: none is left running.
        steps = await asyncio.gather(*jobs, return_exceptions=True)
        for step in steps:
            if isinstance(step, BaseException):
                raise step
        return msgspec.structs.replace(
            tree,
            steps=steps,
            ledger=tree.ledger + ledger,
        )

    async def _step(
        self,
        tree: Tree,
        step: Step,
        key: str,
        ledger: Ledger,
    ) -> Step:
        if not imitable(step):
            return step
        moment = Moment(copies=(_context(tree, step, self._pictures),))
        action = step.action or ""
        prompt = step.prompt or self._agent.ask(moment).text
        problem = None
        for ask in range(ASKS):
            dialect = Annotation(self._full, action, problem)
            # With the seed of the first ask, a teacher could only repeat its unusable
            # answer.
            seed = derive_seed(
                self._settings.seed,
                "annotate",
                key,
                step.id,
                ask,
            )
            request = self._request(dialect, moment, seed)
            most_bytes = self._settings.environment.most_text_bytes
            reply = await reply_within(most_bytes, self._policy, request)
            # A server reports the number of tokens, but not the tokens.
            ledger.generated_tokens += len(reply.token_ids) or reply.generated_tokens
            ledger.prompt_tokens += reply.prompt_tokens
            answer = dialect.read(reply.text, moment)
            problem = answer.problem
            if answer.tag is not None and answer.reasoning is not None:
                # A teacher may answer in paragraphs; the dialects write reasoning in
                # one line.
                reasoning = one_line(answer.reasoning)
                written = Answer(answer.tag, reasoning, {1: action})
                response = self._agent.write(written, moment)
                return msgspec.structs.replace(
                    without_tokens(step),
                    prompt=prompt,
                    response=response,
                    tag=answer.tag,
                    mask=None,
                )
        if self.unusable is None:
            self.unusable = reply.text
        return msgspec.structs.replace(step, prompt=prompt, mask=NOT_ANNOTATED)

    def _request(self, dialect: Dialect, moment: Moment, seed: int) -> Request:
        policy = self._settings.policy
        return Request(
            message=dialect.ask(moment),
            moment=moment,
            states=(),
            form=dialect,
            seed=seed,
            episode_seed=seed,
            temperature=policy.temperature,
            max_tokens=policy.max_tokens,
        )


def without_tokens(step: Step) -> Step:
    """A step without the sampled tokens of its earlier response."""
    return msgspec.structs.replace(
        step,
        token_ids=[],
        generated_tokens=msgspec.UNSET,
        logprobs=[],
        temperature=1.0,
        logprob_temperature=1.0,
        stop=StopReason.NONE,
    )


def imitable(step: Step) -> bool:
    """Whether `sft` would imitate a step, or would if the teacher had annotated it."""
    return (
        step.validity is Validity.VALID
        and step.action is not None
        and step.outcome is not Outcome.ERRORED
        and step.mask in (None, NOT_ANNOTATED)
    )


def _context(tree: Tree, step: Step, folder: Path) -> Context:
    """What the agent knew before `step`."""
    way = path(tree, step)
    pictures = [Picture(read_picture(folder, name)) for name in step.pictures or ()]
    return Context(
        task=tree.task,
        instruction=tree.instruction,
        observations=tuple(before.observation for before in way),
        actions=tuple(before.action or "" for before in way[:-1]),
        admissible=tuple(step.admissible),
        pictures=tuple(pictures),
    )


class Annotation:
    """The dialect that asks for the reasoning behind `action`, as `agent` would write it.

    SPARK's teacher reviews (observation, action) sequences and "synthesizes missing
    reasoning traces, selectively inserting <explore> tags at steps where epistemic
    uncertainty logically arises" (App. B.4). Its prompt is not published. Here the
    teacher sees the full prompt that an agent gets at that step, and the action that
    was taken. It sees nothing of later steps, so the reasoning cannot refer to them.
    `problem` says why its previous answer could not be used.
    """

    def __init__(self, agent: Dialect, action: str, problem: str | None = None) -> None:
        self.fixed = agent.fixed
        self._agent = agent
        self._action = action
        self._problem = problem

    def ask(self, moment: Moment) -> Message:
        """The agent's message, with the request added after its text."""
        message = self._agent.ask(moment)
        text = message.text + "\n\n" + REQUEST.format(action=self._action)
        if self._problem is not None:
            text += (
                f"\n\nYour answer before this one could not be used: {self._problem}."
            )
        return Message((text, *message.pictures))

    def read(self, response: str, moment: Moment) -> Answer:
        """Tag, reasoning and action of an answer.

        Any action other than the given one is a problem too. If the teacher thinks
        aloud before it answers, the answer is read from the last reasoning tag on.
        """
        answer = self._agent.read(response, moment)
        if answer.problem is not None:
            last = max(response.lower().rfind(f"<{tag}>") for tag in REASONING_TAGS)
            final = self._agent.read(response[max(last, 0) :], moment)
            # The problem of the whole response says more than that of its end.
            if final.problem is not None:
                return answer
            answer = final
        if answer.actions[1] != one_line(self._action):
            return Answer(problem="the action was changed")
        return answer

    def write(self, answer: Answer, moment: Moment) -> str:
        """The response in the agent's format."""
        return self._agent.write(answer, moment)
