"""study: plays a file's starts and arms as ordinary runs, and passes over what ended.

Every stage is a command of its own process, as a person would type it, in
OUT/SEED/{demos,START,ARM}. A seed's arms begin once their start has ended. A command that
has ended with the same words is not started again; one that was killed is resumed.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join
from tempfile import TemporaryDirectory
from threading import Event

from agentcli.credit.registry import make as make_credit
from agentcli.environments.protocol import World
from agentcli.environments.registry import check_split, make_world
from agentcli.errors import AgentCliError, MissingError, UsageError
from agentcli.exploration.registry import check as check_exploration
from agentcli.policies.load import existing
from agentcli.policies.registry import LOADING
from agentcli.records.files import sha256_file, write_atomic
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory
from agentcli.records.section import read
from agentcli.records.settings import EnvironmentSettings, Settings
from agentcli.records.shards import Shard
from agentcli.records.study import DEMOS, Study, seeds_of
from agentcli.reports.standing import Progress, Standing
from agentcli.stages import layers
from agentcli.stages.credit import credit_of
from agentcli.stages.sampling import check_capability, check_further_models
from agentcli.stages.yaml_files import Values, read_yaml

SIZES = "sizes"
"""Key of a study file: values that lie over the others, by the name of a size."""
FLAGS = ("--resume", "-q")
"""What is added to every command."""
TO_THE_END = ("--set", "run.unreadable=continue")
"""What is added to every loop: a policy that forgets how to answer is measured too."""
SAMPLING = ("run", "eval", "pass-at-k", "test-time-branch")
"""Commands that take --on and --workers."""
BOOT = """
import sys
from agentcli.cli.app import main
if sys.platform == "linux":
    from agentcli.records.kernel import die_with_parent
    die_with_parent(15)
main()
"""
"""Runs a command that ends with the study, even if that is killed. It can be resumed
then: nothing else writes its files.
"""


@dataclass(frozen=True)
class StageCommand:
    """One stage of one run."""

    folder: Path
    stage: str
    """Its name in the manifest."""
    words: tuple[str, ...]
    sources: tuple["StageCommand", ...] = ()
    """Those that made what it reads."""

    @property
    def ended(self) -> bool:
        """Whether it has ended as it would be typed now, after its sources had."""
        record = RunDirectory(self.folder).finished(self.stage)
        if record is None:
            return False
        typed = record.command[1:]
        # Where trees grew, which comes last, changes no byte of them.
        if "--on" in typed:
            typed = typed[: typed.index("--on")]
        added = (*FLAGS, *TO_THE_END, "--overwrite")
        typed = [word for word in typed if word not in added]
        if not self._is(typed) or _code_changed(record.inputs):
            return False
        made = [RunDirectory(one.folder).finished(one.stage) for one in self.sources]
        return all(one is not None and one.finished <= record.started for one in made)

    def _is(self, typed: Sequence[str]) -> bool:
        """Whether this is what was typed, wherever the study's folder lay then."""
        if len(typed) != len(self.words):
            return False
        # Below the study's folder lie those of the seeds, and in them those of arms.
        now = str(self.folder.parent.parent) + os.sep
        then = set()
        for old, new in zip(typed, self.words, strict=True):
            below = new.removeprefix(now)
            if new.startswith(now) and old.endswith(below):
                then.add(old.removesuffix(below))
            elif old != new:
                return False
        # None where the folder is the current one: no word begins with it.
        return len(then) <= 1


def _code_changed(inputs: Mapping[str, str]) -> bool:
    """Whether a Python file of the user's is another one than a stage has read."""
    code = [(Path(path), inputs[path]) for path in inputs if path.endswith(".py")]
    return any(not is_there(path) or sha256_file(path) != was for path, was in code)


@dataclass(frozen=True)
class Chain:
    """Commands that need each other, in their order."""

    name: str
    """Of the arm and its seed."""
    commands: tuple[StageCommand, ...]
    after: tuple[str, ...] = ()
    """The chains that must have ended before."""

    @property
    def part(self) -> str:
        """The arm or the start, or which demonstrations, without the seed."""
        return self.name.partition(" ")[0]

    @property
    def left(self) -> list[StageCommand]:
        """What is still to be done: from the first that has not ended."""
        for place, command in enumerate(self.commands):
            if not command.ended:
                return list(self.commands[place:])
        return []


@dataclass
class StudyPlan:
    """A study that is ready to begin."""

    study: Study
    out: Path
    seeds: list[int]
    arms: list[str]
    chains: list[Chain] = field(default_factory=list)
    files: dict[Path, str] = field(default_factory=dict)
    """Settings files that the commands name, and what is in them."""

    @property
    def left(self) -> int:
        """How many chains have not ended."""
        return sum(bool(chain.left) for chain in self.chains)


def list_studies() -> list[Path]:
    """The shipped studies, sorted by name."""
    return sorted(layers.presets_folder().with_name("studies").glob("*.yaml"))


def find_study(name: str) -> Path:
    """A shipped study by name, or any file by its path.

    Raises UsageError with the nearest name.
    """
    return layers.find_shipped(name, "study", list_studies())


def read_study(path: Path, size: str | None = None) -> Study:
    """The study of a file, at one of its sizes; the first one if none is named.

    Raises UsageError naming the file and the field.
    """
    values = dict(read_yaml(path))
    sizes = values.pop(SIZES, {})
    if not isinstance(sizes, dict):
        raise UsageError(f"{path}: {SIZES}: takes values by the name of a size")
    if size is None:
        size = next(iter(sizes), None)
    if size is not None:
        if size not in sizes:
            there = ", ".join(map(str, sizes)) or "none"
            raise UsageError(f"{path}: {SIZES}: no size {size}; there are {there}")
        above = sizes[size] or {}
        if not isinstance(above, dict):
            raise UsageError(f"{path}: {SIZES}.{size}: takes values by name")
        values = dict(layers.overlay(values, above))
    return read(values, Study, f"{path}: ")


def refuse_unseen(environ: Mapping[str, str]) -> None:
    """Raises UsageError for settings of variables or the folder, which no file shows."""
    if is_there(layers.PROJECT):
        raise UsageError(
            f"{layers.PROJECT}: a study has its settings in its file; write them there, or "
            "type the command in another folder"
        )
    for name in sorted(environ):
        if name.startswith(layers.PREFIX) and name not in layers.NOT_SETTINGS:
            raise UsageError(
                f"{name}: a study has its settings in its file; unset {name}, or write "
                "them there"
            )


def plan(
    study: Study,
    out: Path,
    *,
    only: Sequence[str] = (),
    seeds: str | None = None,
    shard: Shard | None = None,
) -> StudyPlan:
    """All commands of a study. Raises UsageError for settings that no stage would take.

    `only` are the arms that are played, beside the reference; a shard has a part of the
    seeds.
    """
    arms = arms_of(study, only)
    counted = counted_seeds(study, seeds)
    if shard is not None:
        if shard.index > len(counted):
            raise UsageError(
                f"--shard {shard}: there are {len(counted)} seeds; the last part is "
                f"{len(counted)}/{len(counted)}"
            )
        counted = [*shard.part(counted)]
    made = StudyPlan(study, out, counted, arms)
    shared = _settings_file(made, "all", study.settings)
    for seed in made.seeds:
        made.chains += _seed(made, seed, shared)
    _check(made)
    return made


def arms_of(study: Study, only: Sequence[str]) -> list[str]:
    """The arms that are played: those of `only` and the reference, or all.

    Raises UsageError for an arm that is not there.
    """
    unknown = [arm for arm in only if arm not in study.arms]
    if unknown:
        raise UsageError(f"--only {unknown[0]}: there are {', '.join(study.arms)}")
    return [
        arm for arm in study.arms if not only or arm in only or arm == study.reference
    ]


def counted_seeds(study: Study, typed: str | None) -> list[int]:
    """The seeds that were typed, or those of the file. Raises UsageError."""
    return seeds_of(typed or str(study.seeds), "seeds" if typed is None else "--seeds")


def _settings_file(made: StudyPlan, name: str, values: Values) -> list[str]:
    """The words that give these settings to a command.

    The file's name has a digest of its values: a changed study is another command.
    """
    # JSON is YAML, and has one spelling.
    try:
        text = json.dumps(values, sort_keys=True, indent=1) + "\n"
    except TypeError as error:
        raise UsageError(
            f"settings of {name}: {error}; use text and numbers"
        ) from error
    preset = layers.find_preset(made.study.preset)
    # What a preset of the user holds may change under its name.
    own = (
        ""
        if preset in layers.list_presets()
        else json.dumps(layers.file_values(preset))
    )
    digest = hashlib.sha256((text + own).encode()).hexdigest()[:8]
    path = made.out / "settings" / f"{name}-{digest}.yaml"
    made.files[path] = text
    return ["--preset", made.study.preset, "-c", str(path)]


def _check(made: StudyPlan) -> None:
    """Raises UsageError for settings that no stage would take; writes nothing."""
    # Making a world may read data, and most arms share one.
    worlds: list[tuple[EnvironmentSettings, World]] = []
    with TemporaryDirectory() as folder:
        for path, text in made.files.items():
            copy = Path(folder) / path.name
            copy.write_text(text, encoding="utf-8")
            name = path.stem.rpartition("-")[0]
            try:
                settings = layers.resolve(made.study.preset, [copy])
                make_credit(settings.credit)
                _refuse_own_place(settings, json.loads(text))
                _refuse_unfit_evaluations(made, path, settings)
                # Only the loops of arms grow trees: evaluations play chains.
                if name in made.arms:
                    _check_arm(made.study, settings, worlds)
            except UsageError as error:
                fault = str(error).replace(f"{copy}: ", "")
                raise UsageError(f"settings of {name}: {fault}") from error


def _refuse_own_place(settings: Settings, given: Values) -> None:
    """Raises UsageError for settings that a study has a place of its own for."""
    policy = settings.policy
    place = "would be evaluated in the place of what was trained"
    if policy.kind not in LOADING:
        raise UsageError(f"policy.kind: {policy.kind} {place}; leave it out")
    if policy.model is not None:
        raise UsageError(
            f"policy.model: {policy.model} {place}; name the model to begin with as "
            "starts.NAME.model"
        )
    if "seed" in given:
        raise UsageError("seed: the study's own is used; name it as seeds")


def _refuse_unfit_evaluations(made: StudyPlan, file: Path, settings: Settings) -> None:
    """Raises UsageError for evaluations with `settings` of `file` that are not meant."""
    kept, every = settings.evaluation.trees, settings.run.evaluate_every
    for command in (one for chain in made.chains for one in chain.commands):
        stage, _, label = command.stage.partition("/")
        if stage == "evaluation" and str(file) in command.words:
            part = command.folder.name
            made.study.refuse_dropped_trees(kept, part, label)
            made.study.refuse_replaced(part, label, loops=every is not None)
            panel, k = made.study.panels[label], settings.evaluation.k
            if panel.by == "pass-at-k" and k > panel.samples:
                raise UsageError(
                    f"panels.{label}.samples: {panel.samples} samples give no pass@{k}; "
                    f"raise them, or lower panels.{label}.settings.evaluation.k"
                )


def _check_arm(
    study: Study,
    settings: Settings,
    worlds: list[tuple[EnvironmentSettings, World]],
) -> None:
    """Raises UsageError for an arm whose trees could not grow, or be evaluated.

    Otherwise it would be found once the first policy is trained. `worlds` are those
    that were made before.
    """
    check_exploration(settings)
    # A study may be planned where a model of it is not yet.
    with suppress(MissingError):
        check_further_models(settings)
    with suppress(MissingError):
        credit_of(settings)
    environment = settings.environment
    known = [world for place, world in worlds if place == environment]
    world = known[0] if known else make_world(environment)
    check_capability(settings, world)
    if not known:
        worlds.append((environment, world))
        if environment.split is not None:
            place = "environment.split"
            check_split(world, environment.name, environment.split, place)
        _check_panels(study, environment, world)


def _check_panels(study: Study, environment: EnvironmentSettings, world: World) -> None:
    """Raises UsageError for a panel of a split that the world lacks."""
    for label, panel in study.panels.items():
        # Other options may make another world.
        if "environment" not in panel.settings:
            place = f"panels.{label}.split"
            check_split(world, environment.name, panel.split, place)


def _seed(made: StudyPlan, seed: int, shared: list[str]) -> Iterator[Chain]:
    """The demonstrations of a seed, its starts, and its arms."""
    study = made.study
    home = made.out / str(seed)
    tail = ["--seed", str(seed)]
    demos: dict[str, Chain] = {}
    imitated: dict[str, Chain] = {}
    models: dict[str, str] = {}
    for name in dict.fromkeys(study.start_of(arm) for arm in made.arms):
        start = study.starts[name]
        shown = []
        for values in start.demonstrations:
            key = json.dumps(values, sort_keys=True)
            if key not in demos:
                folder = DEMOS if not demos else f"{DEMOS}-{len(demos) + 1}"
                demos[key] = _demonstrations(made, home, folder, values, tail)
                yield demos[key]
            shown.append(demos[key])
        if shown:
            models[name] = str(home / name / "checkpoint")
            imitated[name] = _imitation(made, home, name, shown, shared, tail)
            yield imitated[name]
        else:
            models[name] = str(start.model)
    for arm in made.arms:
        name = study.start_of(arm)
        of_arm = layers.overlay(study.settings, study.settings_of(arm))
        words = _settings_file(made, arm, of_arm)
        run = home / arm
        loop = ("run", *words, "--model", models[name], *tail)
        begins = imitated[name].commands[:1] if name in imitated else ()
        command = StageCommand(run, "run", (*loop, "-o", str(run)), begins)
        commands = [command]
        commands += _evaluations(made, command, of_arm, words, tail)
        after = (f"{name} {seed}",) if name in imitated else ()
        yield Chain(f"{arm} {seed}", tuple(commands), after)


def _demonstrations(
    made: StudyPlan, home: Path, name: str, values: Values, tail: Sequence[str]
) -> Chain:
    words = _settings_file(made, name, layers.overlay(made.study.settings, values))
    typed = ("demos", *words, *tail, "-o", str(home / name))
    command = StageCommand(home / name, "demos", typed)
    return Chain(f"{name} {home.name}", (command,))


def _imitation(
    made: StudyPlan,
    home: Path,
    name: str,
    demos: Sequence[Chain],
    shared: list[str],
    tail: Sequence[str],
) -> Chain:
    """A start: a policy that imitates demonstrations, and its evaluations."""
    start = made.study.starts[name]
    values: Values = layers.overlay(made.study.settings, start.settings)
    words = _settings_file(made, name, values) if start.settings else shared
    base = ("--model", start.model) if start.model else ()
    sources = tuple(command for chain in demos for command in chain.commands)
    folders = [str(source.folder) for source in sources]
    typed = ("sft", *folders, *words, *base, *tail, "-o", str(home / name))
    command = StageCommand(home / name, "sft", typed, sources)
    commands = [command, *_evaluations(made, command, values, words, tail)]
    after = tuple(chain.name for chain in demos)
    return Chain(f"{name} {home.name}", tuple(commands), after)


def _evaluations(
    made: StudyPlan,
    of: StageCommand,
    values: Values,
    words: Sequence[str],
    tail: Sequence[str],
) -> list[StageCommand]:
    """The panels of a start or an arm, which `of` makes, with the settings `values`."""
    folder = of.folder
    commands = []
    for label, panel in made.study.panels.items():
        of_panel = words
        if panel.settings:
            name = f"{folder.name}-{label}"
            of_panel = _settings_file(
                made, name, layers.overlay(values, panel.settings)
            )
        samples = "-n" if panel.by == "pass-at-k" else "--samples"
        plays = ("--split", panel.split, samples, str(panel.samples))
        how = ("--temperature", f"{panel.temperature:g}", "--label", label)
        typed = (panel.by, str(folder), *of_panel, *plays, *how, *tail)
        commands.append(StageCommand(folder, f"evaluation/{label}", typed, (of,)))
    return commands


def perform(
    made: StudyPlan, jobs: int, progress: Progress, where: Sequence[str] = ()
) -> None:
    """Plays what has not ended, `jobs` chains at a time.

    A chain that fails stops nothing else. `where` are words for the commands that
    sample: on which machines. Raises AgentCliError at the end, naming the first command
    that failed, with its error; MissingError at once for a model that is nowhere.
    """
    _check_models(made)
    for path, text in made.files.items():
        write_atomic(path, text.encode())
    waiting = {chain.name: chain for chain in made.chains}
    every = sum(len(chain.commands) for chain in made.chains)
    left = sum(len(chain.left) for chain in made.chains)
    progress.start(Standing("study", every, every - left))
    failed: dict[str, str] = {}
    stopped = Event()
    running: dict[Future[str], Chain] = {}
    with ThreadPoolExecutor(jobs) as pool:
        try:
            while waiting or running:
                ready = _ready(waiting, running.values(), failed)
                if not (ready or running):
                    break
                for chain in ready[: jobs - len(running)]:
                    del waiting[chain.name]
                    task = pool.submit(_play, chain, made.out, progress, stopped, where)
                    running[task] = chain
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for task in done:
                    chain = running.pop(task)
                    problem = task.result()
                    if problem:
                        failed[chain.name] = problem
                        progress.note(f"{chain.name}: {problem}")
        finally:
            stopped.set()
            progress.stop()
    if failed:
        name = next(chain.name for chain in made.chains if chain.name in failed)
        raise AgentCliError(
            f"{len(failed)} of {len(made.chains)} parts failed, first {name}: "
            f"{failed[name]}; mend that and type the command again, it goes on"
        )


def _check_models(made: StudyPlan) -> None:
    """Raises MissingError for a model to begin with that is nowhere.

    Its demonstrations would be played first. A study may be planned without it.
    """
    if not made.left:
        return
    for name in dict.fromkeys(made.study.start_of(arm) for arm in made.arms):
        model = made.study.starts[name].model
        if model is not None:
            existing(model, f"starts.{name}.model")


def _ready(
    waiting: dict[str, Chain], running: Iterable[Chain], failed: dict[str, str]
) -> list[Chain]:
    """The chains that can begin. What needs a failed one fails too."""
    busy = {chain.name for chain in running}
    ready = []
    for chain in list(waiting.values()):
        lacking = [name for name in chain.after if name in failed]
        if lacking:
            failed[chain.name] = f"{lacking[0]} failed"
            del waiting[chain.name]
        elif not any(name in waiting or name in busy for name in chain.after):
            ready.append(chain)
    return ready


def _play(
    chain: Chain, out: Path, progress: Progress, stopped: Event, where: Sequence[str]
) -> str:
    """Runs what is left of a chain; returns the error of the command that failed."""
    for command in chain.left:
        progress.phase(f"{chain.name} {command.stage}", {})
        words = [*command.words]
        if command.stage == "run":
            words += TO_THE_END
        if command.words[0] in SAMPLING:
            words += where
        # With --resume, a run that had ended with other words does nothing, or refuses.
        had_ended = RunDirectory(command.folder).finished(command.stage) is not None
        problem = _run(words, out / "logs" / f"{chain.name}.log", stopped)
        if had_ended and not command.ended:
            held = f"{command.folder} holds {command.stage} with other settings"
            remedy = f"{held} or inputs; remove the folder"
            if command.stage.startswith("evaluation/"):
                remedy += ", or give the panel another name"
            # What the command said, if it refused, names the setting or the input.
            problem = f"{problem}; {remedy}" if problem else remedy
        if problem:
            return problem
        progress.advance()
    return ""


def _run(typed: Sequence[str], log: Path, stopped: Event) -> str:
    """Runs a command in a process of its own; "" if it ends well, else its last line.

    Stops it, resumable, once `stopped` is set.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-c", BOOT, *typed, *FLAGS]
    # Runs share the cores, so each has one thread.
    environ = {"OMP_NUM_THREADS": "1"} | os.environ
    with log.open("ab") as file:
        file.write(f"$ agentcli {join(typed)}\n".encode())
        file.flush()
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environ
        )
        while True:
            try:
                code = process.wait(0.2)
                break
            except subprocess.TimeoutExpired:
                if stopped.is_set():
                    process.terminate()
    if code == 0:
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    # Another command may have begun since, and is no error.
    said = [line for line in lines if line.strip() and not line.startswith("$ ")]
    last = said[-1] if said else ""
    return f"{last} (exit code {code}; {log})"
