"""annotate: a teacher adds reasoning and its tag to every step of given trajectories
(`demos --annotate`; 000 App. B.4).

Annotated are the steps that could be imitated: valid, not masked. Their response
becomes the tag, the teacher's sentence and the action as it was; sampled tokens are
forgotten, an empty prompt is rendered, all else stays. A step for which no usable
answer comes keeps its response and is masked, so that its trajectory serves the others;
where none comes at all, that is an error. A trajectory for which the teacher could not
be asked is left out, counted, and owed: --resume asks again.

The requests for a tree depend on the tree and the seed alone, and the trees come in the
order of the input: an interrupted and an undisturbed annotation of a teacher that
repeats itself leave the same bytes.
"""

import asyncio
import hashlib
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.protocol import World
from agentcli.environments.registry import make_world
from agentcli.errors import AgentCliError, DataError, PolicyError, UsageError
from agentcli.policies.registry import MODEL_FREE
from agentcli.records.files import read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.trees import path, validate_tree
from agentcli.records.types import Ledger, StageRecord, StopReason, Tree
from agentcli.stages.harvest import Standing, harvest, in_order
from agentcli.stages.plan import StagePlan, check_model, model_sources
from agentcli.stages.sampling import Stopwatch, check_policy, open_policy
from agentcli.stages.session import Invocation, Session, carry_out
from agentcli.stages.tally import tally_of
from agentcli.stages.teacher import NOT_ANNOTATED, Teacher, imitable

INTERVAL = 5
"""Steps of one row of the paper's Table 9."""


@dataclass(frozen=True, kw_only=True)
class AnnotationPlan(StagePlan):
    """An annotation that may begin."""

    trees: Path
    """Those that are annotated."""
    world: World
    model: str | None

    def counts(self) -> dict[str, int]:
        return {"trees": sum(1 for _ in given_trees(self.trees, self.world))}


def plan(
    settings: Settings, source: Path, out: Path, *, model: str | None
) -> AnnotationPlan:
    """The trees of the run `source` with reasoning, into `out`; the teacher is the
    policy of settings.demos.policy.

    Raises what `check_teacher` raises, UsageError for an unknown policy, and DataError
    where there are no trees.
    """
    trees = RunDirectory(source).existing_trees()
    check_teacher(settings, source, out)
    teacher = settings.demos.policy
    world = make_world(settings.environment)
    check_policy(settings, teacher, world)
    check_model(model)
    policy = msgspec.structs.replace(
        settings.policy, kind=teacher, model=model or settings.policy.model
    )
    run = RunDirectory(out)
    return AnnotationPlan(
        stage="annotate",
        run=run,
        settings=msgspec.structs.replace(settings, policy=policy),
        sections=("policy", "prompt"),
        conditions={"world": world.card.name},
        inputs={"annotate": trees, "model": model},
        sources=[trees, *model_sources(model)],
        outputs=[run.trees],
        trees=trees,
        world=world,
        model=model,
    )


def annotate(
    settings: Settings,
    source: Path,
    out: Path,
    invocation: Invocation,
    *,
    model: str | None,
) -> StageRecord:
    """Plan and perform."""
    return carry_out(plan(settings, source, out, model=model), perform, invocation)


def perform(plan: AnnotationPlan, session: Session) -> StageRecord:
    """Write the annotated trees.

    Raises DataError for trees that are none or belong to another world, and
    AgentCliError when no trajectory could be annotated or no step got a usable answer.
    """
    return asyncio.run(_annotate(plan, session))


def check_teacher(settings: Settings, source: Path, out: Path) -> None:
    """Raises UsageError for a policy that reads no prompts, and when `out` is the run
    that is read.
    """
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


async def _annotate(plan: AnnotationPlan, session: Session) -> StageRecord:
    source = plan.trees
    trees = plan.run.trees
    keys = [_key(tree) for tree in given_trees(source, plan.world)]
    kept = _kept(trees, source, keys) if session.resumed else Counter[str]()
    if session.done and kept == Counter(keys):
        return session.nothing_owed(session.done)
    if session.resumed:
        _rewrite(trees, keys)
    problem, seconds = await _ask(plan, session, keys, kept)
    if not trees.exists():
        raise AgentCliError(f"no trajectory of {source} could be annotated: {problem}")
    _rewrite(trees, keys)
    counts, statistics = _summary(trees, len(keys))
    if counts[NOT_ANNOTATED] and not counts["annotated"]:
        raise AgentCliError(
            f"no step of {source} got a usable answer ({counts[NOT_ANNOTATED]} asked "
            "for); name another teacher with --policy and --model, or a higher "
            "policy.max_tokens, and use --overwrite"
        )
    if counts[NOT_ANNOTATED]:
        asked = counts["annotated"] + counts[NOT_ANNOTATED]
        session.progress.note(
            f"{counts[NOT_ANNOTATED]} of {asked} steps got no usable answer and are "
            "masked"
        )
    if problem:
        session.progress.note(
            f"{counts['owed']} trajectories are owed, --resume asks again; the first: "
            f"{problem}"
        )
    ledger = tally_of(trees).ledger
    return session.finish(
        latest=True,
        counts=counts,
        statistics=statistics,
        ledger=ledger,
        seconds=seconds,
    )


class Annotated(NamedTuple):
    """A tree with reasoning, or why there is none."""

    tree: Tree | None
    problem: str = ""

    @property
    def success(self) -> None:
        """Nothing for the bar: the trajectory is as good as it was."""
        return None


async def _ask(
    plan: AnnotationPlan, session: Session, keys: list[str], kept: Counter[str]
) -> tuple[str, dict[str, float]]:
    """Write the trees that are owed; the first problem, if there was one, and where the
    time went.
    """
    settings = plan.settings
    pool = EnginePool(
        settings.environment
    )  # a teacher steps no environment: its engines are never started
    problems: list[str] = []
    async with open_policy(settings, plan.world, pool, plan.model) as policy:
        watch = Stopwatch(pool, policy)
        teacher = Teacher(policy, plan.world, settings)

        async def annotate(tree: Tree) -> Annotated:
            try:
                return Annotated(await teacher.annotate(tree, _key(tree)))
            except PolicyError as error:
                return Annotated(None, str(error))

        with session.appending(plan.run.trees) as write:

            def store(annotated: Annotated) -> bool:
                if annotated.tree is None:
                    problems.append(annotated.problem)
                    return False
                write(annotated.tree)
                return True

            standing = Standing(
                f"annotating ({settings.policy.kind})", len(keys), kept.total()
            )
            results = in_order(
                _owed(plan.trees, kept.copy()), annotate, settings.rollout.concurrency
            )
            await harvest(session.progress, standing, results, store)
        return next(iter(problems), ""), watch.seconds()


def _key(tree: Tree) -> str:
    """What annotation leaves alone, hashed: it tells which tree of the input an
    annotated tree is.
    """
    blank: dict[str, Any] = {"prompt": "", "response": "", "tag": None, "mask": None}
    tokens: dict[str, Any] = {"token_ids": [], "logprobs": [], "stop": StopReason.NONE}
    tokens |= {"temperature": 1.0, "logprob_temperature": 1.0}
    steps = [msgspec.structs.replace(step, **blank, **tokens) for step in tree.steps]
    bare = msgspec.structs.replace(tree, steps=steps, ledger=Ledger())
    return hashlib.blake2b(msgspec.json.encode(bare), digest_size=16).hexdigest()


def given_trees(source: Path, world: World) -> Iterator[Tree]:
    """Stream the trees of a file. Raises DataError for one that is damaged or of
    another world, and where there is none.
    """
    number = 0
    for number, tree in enumerate(read_records(source, Tree), 1):
        validate_tree(tree, f"{source}:{number}")
        name = world.card.name
        if tree.task.world != name:
            raise DataError(
                f"{source}:{number}: task.world: is {tree.task.world!r}, "
                f"environment.name is {name!r}; name the world of these trees with "
                "--env or --preset"
            )
        yield tree
    if number == 0:
        raise DataError(
            f"{source}: holds no trees; write some with: agentcli demos --resume -o "
            f"{source.parent}"
        )


def _kept(trees: Path, source: Path, keys: list[str]) -> Counter[str]:
    """How often each tree of the input is annotated already."""
    kept = Counter(map(_key, read_records(trees, Tree)))
    if kept - Counter(keys):
        raise DataError(
            f"{trees}: holds trees that are not in {source}; choose another -o DIR, "
            "or use --overwrite"
        )
    return kept


def _owed(source: Path, kept: Counter[str]) -> Iterator[Tree]:
    """The trees of the input that are not among `kept`, which is used up."""
    for tree in read_records(source, Tree):
        key = _key(tree)
        if kept[key]:
            kept[key] -= 1
        else:
            yield tree


def _rewrite(trees: Path, keys: list[str]) -> None:
    """Bring a file of annotated trees into the order of `keys`, without a torn last
    line and without holding it in memory.
    """
    places: dict[str, deque[int]] = {}
    decoder = msgspec.json.Decoder(Tree)
    part = trees.with_name(trees.name + ".part")
    with open(trees, "rb") as file, open(part, "wb") as ordered:
        offset = 0
        for line in file:
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                places.setdefault(_key(decoder.decode(line)), deque()).append(offset)
            offset += len(line)
        for key in keys:
            if places.get(key):
                file.seek(places[key].popleft())
                ordered.write(file.readline().rstrip(b"\n") + b"\n")
    part.replace(trees)


def _summary(trees: Path, wanted: int) -> tuple[dict[str, int], dict[str, Any]]:
    """Counts, and the share of <explore> among the annotated steps by their place in
    the trajectory (000 Table 9).
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
    annotated, explore = Counter[int](), Counter[int]()
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
    counts.update(
        owed=wanted - counts["trees"],
        annotated=annotated.total(),
        explore=explore.total(),
    )
    shares = {
        f"{INTERVAL * number + 1}-{INTERVAL * (number + 1)}": round(
            explore[number] / annotated[number], 4
        )
        for number in sorted(annotated)
    }
    return counts, {"explore_by_step": shares}
