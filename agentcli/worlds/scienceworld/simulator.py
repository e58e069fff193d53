"""One Java process, and any number of games in it.

The simulator keeps three things per Java process that really belong to a game: the
random number generator, the counter that numbers new objects, and the simplifications.
These are swapped in before each call to a game, so games never affect each other, and
each runs exactly as it would alone. Constant identity hashes (`hashCode=2`) make the
order of its hash sets, and so every text and score, the same in every process.

A game needs 0.4 MB: data that is needed only to open it (10 MB) is dropped.
"""

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentcli.environments.cache import Cache, cache_folder
from agentcli.environments.protocol import LostEngineError, Requisite
from agentcli.errors import EngineError, MissingError
from agentcli.records.scratch import ScratchFolder

OLDEST = 11
"""The oldest Java that runs it."""
GET = "apt-get install default-jre-headless, or export JAVA_HOME=DIR"
PATIENCE_SECONDS = 10.0


def java_path(environ: Mapping[str, str]) -> str:
    """The program: $JAVA_HOME's, else the first on the PATH."""
    home = environ.get("JAVA_HOME")
    # The simulator runs in a folder of its own.
    return os.path.abspath(os.path.join(home, "bin", "java")) if home else "java"


def java_here(environ: Mapping[str, str]) -> Requisite:
    """The Java of this machine, as it reports itself."""
    detail, present = _examined(java_path(environ), environ)
    get = None if present else GET
    return Requisite(name="scienceworld java", present=present, detail=detail, get=get)


def _examined(path: str, environ: Mapping[str, str]) -> tuple[str, bool]:
    """The program with its version or its fault, and whether it runs the simulator."""
    program = shutil.which(path, path=environ.get("PATH"))
    if program is None:
        fault = f"{path}: no such program; Java {OLDEST} or newer runs the simulator"
        return fault, False
    try:
        reported = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program}: cannot be run ({error})", False
    version = re.search(r'version "(\d+)', reported.stderr + reported.stdout)
    if reported.returncode or version is None:
        return f"{program}: is no working Java", False
    if int(version[1]) < OLDEST:
        fault = f"Java {version[1]} is too old; {OLDEST} or newer is needed"
        return f"{program}: {fault}", False
    return f"{program}: Java {version[1]}", True


# With constant identity hashes the order of Java's sets, and so a replay, repeats.
FLAGS = (
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
    "-XX:+UseSerialGC",
    # A full heap ends the process, and the pool replays its games in another.
    "-XX:+ExitOnOutOfMemoryError",
)


FULL_SCORE = 100
"""The score of a task that is done."""


class Turn(NamedTuple):
    """The simulator's answer to an action, and where the game stands after it."""

    text: str
    score: int
    """0 to 100; -100 for a task that can no longer be done."""
    ticks: int
    """Time that has passed in the world."""


class Simulator:
    """A Java process.

    Raises ImportError where the package scienceworld is not installed, and MissingError
    where no Java runs it.
    """

    def __init__(self, heap_mb: int) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
        from scienceworld.constants import JAR_PATH

        # It reports at length what `speaking` turns into one line.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        jar = Path(JAR_PATH)
        # The simulator reads and writes this file where it runs.
        self._folder = ScratchFolder()
        shutil.copy(jar.with_name("object_type_ids.tsv"), self._folder.name)
        try:
            # It stays in this process group, so the pool ends it with the worker, and
            # its standard input closes with the worker, which ends it too.
            port, token, process = launch_gateway(
                classpath=str(jar),
                javaopts=[*FLAGS, f"-Xmx{heap_mb}m"],
                java_path=java_path(os.environ),
                cwd=self._folder.name,
                die_on_exit=True,
                # Otherwise any user of the machine could call into the process.
                enable_auth=True,
                return_proc=True,
            )
        except (OSError, ValueError) as error:
            raise _not_started(heap_mb) from error
        self.pid: int = process.pid
        self._gateway = JavaGateway(
            # Java objects are let go of by name: py4j would do so at any time, even
            # when the process is long gone.
            gateway_parameters=GatewayParameters(
                port=port, auth_token=token, enable_memory_management=False
            ),
            java_process=process,
        )
        self._current: ScienceGame | None = None
        """The game whose state the process holds."""
        with speaking():
            self._prepare()

    def _prepare(self) -> None:
        """Silences the simulator, and reaches what it keeps for the whole process."""
        jvm: Any = self._gateway.jvm
        nothing = jvm.java.io.OutputStream.nullOutputStream()
        jvm.java.lang.System.setOut(jvm.java.io.PrintStream(nothing))
        random_class = jvm.java.lang.Class.forName("scala.util.Random")
        self._generator = random_class.getDeclaredField("self")
        self._generator.setAccessible(True)
        self._shared_random = getattr(jvm.scala.util, "Random$")
        self._shared_random = getattr(self._shared_random, "MODULE$")
        self._numbers = jvm.util.UniqueIdentifier
        self._processor = jvm.main.scala.scienceworld.runtime.SimplifierProcessor
        self._interface = jvm.scienceworld.runtime.pythonapi.PythonInterface
        self._new_random = jvm.java.util.Random
        self._aside = self._new_random()

    def game(self) -> "ScienceGame":
        """A new game, in which no task is open yet."""
        with speaking():
            self._leave()
            # The simulator draws random numbers from the beginning.
            generator = self._new_random()
            self._generator.set(self._shared_random, generator)
            game = ScienceGame(self, self._interface(), generator)
            self._current = game
        return game

    def enter(self, game: "ScienceGame") -> None:
        """Gives a game back what the process keeps of it."""
        if self._current is game:
            return
        self._leave()
        self._generator.set(self._shared_random, game.generator)
        # So Scala names the method that assigns to `count`.
        getattr(self._numbers, "count_$eq")(game.numbered)
        self._processor.parseSimplificationStr(game.simplified)
        self._current = game

    @contextmanager
    def drawing_aside(self, game: "ScienceGame") -> Iterator[None]:
        """Gives the questions asked in the block random numbers of their own."""
        self.enter(game)
        # The same seed each time: what is listed must not depend on how often one asks.
        self._aside.setSeed(0)
        self._generator.set(self._shared_random, self._aside)
        yield
        self._generator.set(self._shared_random, game.generator)

    def _leave(self) -> None:
        """Keeps what the present game would lose."""
        if self._current is not None:
            self._current.numbered = self._numbers.count()
        self._current = None

    def used_simplifications(self) -> str:
        """The simplifications in force, as the process keeps them."""
        return ",".join(self._processor.getSimplificationsUsed().split(", "))

    def forget(self, *objects: Any) -> None:
        for one in objects:
            self._gateway.detach(one)

    def close(self) -> None:
        """Ends the process."""
        process = self._gateway.java_process
        self._gateway.shutdown()
        process.kill()
        process.wait()
        self._folder.cleanup()


class ScienceGame:
    """One task in play."""

    def __init__(self, simulator: Simulator, interface: Any, generator: Any) -> None:
        self.generator = generator
        """Its random numbers."""
        self.numbered = 0
        """Objects that were numbered so far."""
        self.simplified = ""
        """The simplifications in force."""
        self._simulator = simulator
        self._interface = interface

    def open(self, kind: str, variation: int, simplifications: str) -> None:
        """Begins a task. Raises EngineError where the simulator has none like it."""
        with speaking():
            self._simulator.enter(self)
            fault = self._interface.load(kind, variation, simplifications, False)
            # Only opening a task needs it, and it is large.
            getattr(self._interface, "taskMaker_$eq")(None)
            self.simplified = self._simulator.used_simplifications()
        if fault:
            raise EngineError(f"{kind} {variation}: {fault}")

    def solve(self, kind: str, variation: int, simplifications: str) -> list[str]:
        """The simulator's own solution of a task, which it plays once to find it."""
        with speaking():
            self._simulator.enter(self)
            self._interface.load(kind, variation, simplifications, True)
            return list(self._interface.getGoldActionSequence())

    def step(self, action: str) -> Turn:
        """Acts."""
        with speaking():
            self._simulator.enter(self)
            text = self._interface.step(action)
            score = round(100 * self._interface.getScore())
            ticks = self._interface.getNumMoves()
            ended = self._interface.getCompleted()
        if ended and score < 0:
            raise EngineError(f"the simulator broke: {text}")
        return Turn(text, score, ticks)

    def close(self) -> None:
        with speaking():
            self._simulator.forget(self._interface, self.generator)

    def task(self) -> str:
        return self._ask("getTaskDescription")

    def look(self) -> str:
        """The room as the agent would see it; takes no time."""
        return self._ask("freeActionLook")

    def inventory(self) -> str:
        """The things that the agent carries; takes no time."""
        return self._ask("freeActionInventory")

    def _ask(self, method: str, *arguments: str) -> str:
        with speaking():
            self._simulator.enter(self)
            return str(getattr(self._interface, method)(*arguments))

    def things(self) -> list[str]:
        """The names of everything that an action could be about, sorted.

        To tell like things apart, the simulator draws random numbers: not the game's.
        """
        with speaking(), self._simulator.drawing_aside(self):
            listed = self._interface.getPossibleObjects()
            names = sorted(listed)
            self._simulator.forget(listed)
        return names


@contextmanager
def speaking() -> Iterator[None]:
    """Turns what py4j raises into errors of this package.

    EngineError where the simulator raised, LostEngineError where the process is gone.
    """
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        first_line = str(error.java_exception).splitlines()[0]
        raise EngineError(f"the simulator raised {first_line}") from error
    except (Py4JError, OSError) as error:
        reason = re.sub(r"\s+", " ", str(error)) or type(error).__name__
        raise LostEngineError(f"the Java process is gone: {reason}") from error


def _not_started(heap_mb: int) -> MissingError:
    java = java_here(os.environ)
    if not java.present:
        return MissingError(f"scienceworld: {java.detail}; {GET}")
    return MissingError(
        f"scienceworld: {java_path(os.environ)} did not start with {heap_mb} MB; name "
        "a smaller heap with --set environment.options.heap_mb=N"
    )


FORMAT = 1
"""Increase with any change to how a path is computed."""
FREE = ("look around", "inventory", "task")
"""Actions that take no time, wherever they stand in a path."""


class GoldPath(msgspec.Struct, frozen=True):
    """The actions that solve one task from its beginning."""

    actions: tuple[str, ...]


def gold_path(
    simulator: Simulator, kind: str, variation: int, simplifications: str
) -> tuple[str, ...]:
    """The actions that solve a task. Computing them takes up to seconds.

    Raises EngineError for a task that the simulator cannot solve, and WriteError where
    the path cannot be kept.
    """
    from scienceworld.version import __version__

    def compute() -> GoldPath:
        game = simulator.game()
        solution = game.solve(kind, variation, simplifications)
        game.open(kind, variation, simplifications)
        path = GoldPath(_until_won(game, solution))
        game.close()
        return path

    folder = cache_folder(os.environ, "scienceworld")
    cache = Cache(folder, f"{FORMAT} {__version__}")
    parts = (kind, str(variation), simplifications)
    return cache.get(GoldPath, parts, compute).actions


def _until_won(game: ScienceGame, solution: list[str]) -> tuple[str, ...]:
    """The solution without what follows the full score."""
    for length, action in enumerate(solution, 1):
        if game.step(action).score >= FULL_SCORE:
            return tuple(solution[:length])
    raise EngineError("the simulator's own solution does not solve this task")


def rest(path: tuple[str, ...], taken: list[str]) -> list[str]:
    """What is left of a path after the actions that were taken.

    Looking around is no step of the way: it may be left out or added. Raises
    EngineError where another action was taken.
    """
    place = 0
    for action in taken:
        while place < len(path) and path[place] != action and path[place] in FREE:
            place += 1
        if place < len(path) and path[place] == action:
            place += 1
        elif action not in FREE:
            raise EngineError(
                f"{action!r} left the simulator's own solution, and it knows no other"
            )
    return list(path[place:])
