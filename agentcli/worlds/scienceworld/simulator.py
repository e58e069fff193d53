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
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from agentcli.environments.protocol import LostEngineError
from agentcli.errors import EngineError, MissingError
from agentcli.records.scratch import ScratchFolder
from agentcli.worlds.scienceworld.java import GET, jar_path, java_here, java_path

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

        # It reports at length what `speaking` turns into one line.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        jar = jar_path()
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
        getattr(self._numbers, "count_$eq")(game.numbered)
        self._processor.parseSimplificationStr(game.simplified)
        self._current = game

    @contextmanager
    def drawing_aside(self, game: "ScienceGame") -> Iterator[None]:
        """Lets what is asked of a game draw random numbers of its own."""
        self.enter(game)
        self._aside.setSeed(0)
        self._generator.set(self._shared_random, self._aside)
        yield
        self._generator.set(self._shared_random, game.generator)

    def _leave(self) -> None:
        """Keeps what the present game would lose."""
        if self._current is not None:
            self._current.numbered = self._numbers.count()
        self._current = None

    def variations(self) -> dict[str, int]:
        """The number of variations of each task."""
        interface = self._interface()
        names = list(interface.getTaskNames())
        return {name: interface.getTaskMaxVariations(name) for name in names}

    def used_simplifications(self) -> str:
        """The simplifications in force, as the process keeps them."""
        return ",".join(self._processor.getSimplificationsUsed().split(", "))

    def forget(self, *objects: Any) -> None:
        """Lets the process free Java objects."""
        for one in objects:
            self._gateway.detach(one)

    def used_mb(self) -> float:
        """Heap in use after a collection of garbage."""
        runtime = self._gateway.jvm.java.lang.Runtime.getRuntime()
        runtime.gc()
        used: int = runtime.totalMemory() - runtime.freeMemory()
        return used / 2**20

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
        """Lets go of the game."""
        with speaking():
            self._simulator.forget(self._interface, self.generator)

    def task(self) -> str:
        """The task sentence."""
        with speaking():
            self._simulator.enter(self)
            return str(self._interface.getTaskDescription())

    def look(self) -> str:
        """The room as the agent would see it; takes no time."""
        with speaking():
            self._simulator.enter(self)
            return str(self._interface.freeActionLook())

    def inventory(self) -> str:
        """The things that the agent carries; takes no time."""
        with speaking():
            self._simulator.enter(self)
            return str(self._interface.freeActionInventory())

    def things(self) -> list[str]:
        """The names of everything that an action could be about, sorted.

        To tell like things apart, the simulator draws random numbers: not the game's.
        """
        with speaking(), self._simulator.drawing_aside(self):
            listed = self._interface.getPossibleObjects()
            names = sorted(listed)
            self._simulator.forget(listed)
        return names

    def tree(self) -> str:
        """Every object with its properties, as JSON; slow."""
        with speaking():
            self._simulator.enter(self)
            return str(self._interface.getObjectTree(""))


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
