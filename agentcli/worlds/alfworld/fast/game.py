"""One game as a graph of visited states, shared by its players in this process.

A state is what the planner knows (a number from its library) together with the facts
(an integer): facts depend on the past, so neither follows from the other. Everything about a
state is worked out when first asked for and kept: what is admissible, whether it is
won, what an action leads to and what is read on arriving there. A snapshot is a
reference to a state.

Games that are not being played are kept for a while, because a task is often opened
again soon. The oldest gives its copy of the library to the next game.
"""

from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_, xor
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentcli.environments.cache import Cache
from agentcli.environments.protocol import Observation
from agentcli.errors import DataError
from agentcli.records.regular import read_regular
from agentcli.worlds.alfworld import statekey
from agentcli.worlds.alfworld.fast import library
from agentcli.worlds.alfworld.fast.facts import (
    Entities,
    FactTable,
    Hierarchy,
    Supertypes,
    Translation,
)
from agentcli.worlds.alfworld.fast.grammar import (
    Render,
    Renderer,
    load_grammar,
    split_sentence,
)
from agentcli.worlds.alfworld.fast.translator import translate, undisturbed
from agentcli.worlds.alfworld.names import NOTHING, judge

IDLE_GAMES = 4
"""Games that are kept though they are not being played."""
MOST_STATES = 10_000
"""States kept per game; beyond that all are forgotten, and made again when met."""


@dataclass(eq=False, slots=True)
class Operation:
    """One ground operator: its entities, its command, its answer and its effects."""

    entities: Entities
    words: str | Render
    """How it is typed; a function where that changes with the facts."""
    feedback: Render
    kept_added: tuple[int, int] | None = None
    """FactTable.masks of its effects, known once it was applied."""


class Menu(NamedTuple):
    """The commands of a state."""

    operators: dict[str, int]
    """Command -> operator (the first where several are typed alike)."""
    listed: tuple[str, ...]
    """Commands worth listing, sorted."""


class GameState:
    """One true state of a game and what was worked out about it so far.

    It is made while the planner is in this state, which is asked about it then.
    """

    __slots__ = (
        "commands",
        "edges",
        "facts",
        "game",
        "inventory",
        "key",
        "listed",
        "mark",
        "number",
        "stuck",
        "won",
    )

    def __init__(self, game: "Game", number: int, facts: int, mark: int) -> None:
        self.game = game
        self.number = number
        """In the planner's library."""
        self.facts = facts
        self.mark = mark
        """statekey.fingerprint of the facts that matter."""
        self.key, self.inventory = game.describe(facts, mark)
        """Exact state key; what the canonical state adds to the observation."""
        self.won = game.planner.won()
        self.commands, self.listed = game.menu(facts)
        self.edges: dict[str, tuple[GameState, Observation]] = {}
        self.stuck: Observation | None = None
        """The answer to anything that cannot be done here."""


class Game:
    """One loaded game: a copy of the planner, the tables of its task, its states."""

    def __init__(
        self,
        translation: Translation,
        renderer: Renderer,
        sentence: str,
    ) -> None:
        self.users = 0
        self.table = FactTable(translation, sentence)
        self._schemas = translation.actions
        self._operators = translation.operators.split("\n")
        self._most_effects = translation.most_effects
        self._renderer = renderer
        names = statekey.relevant(translation.physics, renderer.predicates)
        self._relevant = self.table.relevant(names)
        blocks = map(self.table.block, statekey.READABLE)
        self._readable = self._relevant & reduce(or_, blocks)
        self._varying = renderer.varying(translation.physics.changed)
        self._operations: list[Operation | None] = [None] * len(self._operators)
        self._words: dict[Entities, str] = {}
        """(action, the entities its command depends on) -> command."""
        self._menus: dict[object, Menu] = {}
        self._states: dict[tuple[int, int], GameState] = {}
        self.planner = library.borrow()
        self.planner.load(translation.sas)
        initial = self.table.initial
        mark = reduce(xor, [translation.marks.get(name, 0) for name in names], 0)
        self.root = self._state(initial, mark)
        intro = renderer.rules("intro", ())(self.table, initial, ())
        self.opening = _observe(self.root, intro)

    def step(self, state: GameState, action: str) -> tuple[GameState, Observation]:
        """Where an action leads and what is read there.

        Exactly TextWorld's answer, also to nonsense.
        """
        command = action.strip()
        edge = state.edges.get(command)
        if edge is not None:
            return edge
        operator = state.commands.get(command)
        # The library knows only what applies; all else is nonsense to TextWorld, too.
        if operator is None:
            # Nothing happens, so one answer serves all nonsense.
            if state.stuck is None:
                state.stuck = _observe(state, NOTHING, accepted=False)
            return state, state.stuck
        operation = self._operation(operator)
        facts = self._apply(state, operator, operation)
        changed = (state.facts ^ facts) & self._relevant
        after = self._state(facts, state.mark ^ self.table.mark(changed))
        text = operation.feedback(self.table, facts, operation.entities)
        accepted, looked = judge(command, state.listed, text)
        observation = _observe(after, text, accepted=accepted, looked=looked)
        state.edges[command] = after, observation
        return after, observation

    def look_again(self, state: GameState, observation: Observation) -> Observation:
        """The observation that led to a state, with what the planner says of it now."""
        self.planner.go(state.number)
        won = self.planner.won()
        return msgspec.structs.replace(
            observation,
            actions=self.menu(state.facts).listed,
            state=state.key,
            canonical=observation.text + state.inventory,
            reward=float(won),
            end="success" if won else None,
        )

    def describe(self, facts: int, mark: int) -> tuple[str, str]:
        """The exact key of a state, and what its canonical state adds to a text."""
        readable = self.table.listed(facts & self._readable)
        return statekey.describe(readable, mark), statekey.inventory(readable)

    def menu(self, facts: int) -> Menu:
        """The commands of the planner's current state."""
        operators = tuple(self.planner.operators())
        # Most states share theirs with others, unless commands vary with the facts.
        key: object = (operators, facts) if self._varying else operators
        menu = self._menus.get(key)
        if menu is None:
            commands: dict[str, int] = {}
            names = set()
            for operator in operators:
                name = self._operators[operator]
                # Operators that differ in inner variables alone are one command.
                if name not in names:
                    names.add(name)
                    commands.setdefault(self._command(operator, facts), operator)
            # Admissible everywhere, help would only tempt: it leads nowhere.
            menu = Menu(commands, tuple(sorted(commands.keys() - {"help"})))
            self._menus[key] = menu
        return menu

    def close(self) -> None:
        """Gives the planner's copy back; the states of this game are then void."""
        library.give_back(self.planner)

    def _apply(self, state: GameState, operator: int, operation: Operation) -> int:
        """Moves the planner; returns the facts afterwards."""
        self.planner.go(state.number)
        if operation.kept_added is None:
            effects = self.planner.apply_reporting(operator, self._most_effects)
            operation.kept_added = self.table.masks(effects)
        else:
            self.planner.apply(operator)
        kept, added = operation.kept_added
        return state.facts & kept | added

    def _state(self, facts: int, mark: int) -> GameState:
        number = self.planner.state()
        state = self._states.get((number, facts))
        if state is None:
            if len(self._states) >= MOST_STATES:
                self._forget()
            state = GameState(self, number, facts, mark)
            self._states[number, facts] = state
        return state

    def _forget(self) -> None:
        # States hold one another by their edges, in circles.
        for state in self._states.values():
            state.edges.clear()
        self._states.clear()
        self._menus.clear()

    def _command(self, operator: int, facts: int) -> str:
        operation = self._operation(operator)
        if isinstance(operation.words, str):
            return operation.words
        return operation.words(self.table, facts, operation.entities)

    def _operation(self, operator: int) -> Operation:
        """The operator with this number, compiled when it is first asked for.

        A game has thousands of them, and an episode meets dozens.
        """
        operation = self._operations[operator]
        if operation is None:
            position, *things = map(int, self._operators[operator].split())
            entities = tuple(things)
            schema = self._schemas[position]
            parameters = schema.parameters[: len(entities)]
            command, feedback, used = self._renderer.action(schema.action, parameters)
            words: str | Render = command
            if schema.action not in self._varying:
                key = (position, *[entities[place] for place in used])
                if key not in self._words:
                    initial = self.table.initial
                    self._words[key] = command(self.table, initial, entities)
                words = self._words[key]
            operation = Operation(entities, words, feedback)
            self._operations[operator] = operation
        return operation


def _observe(
    state: GameState,
    text: str,
    *,
    accepted: bool = True,
    looked: bool = False,
) -> Observation:
    return Observation(
        text=text,
        actions=state.listed,
        state=state.key,
        canonical=text + state.inventory,
        accepted=accepted,
        looked=looked,
        reward=float(state.won),
        end="success" if state.won else None,
    )


class _File(msgspec.Struct):
    """The fields of a game.tw-pddl file that are read."""

    pddl_domain: str
    pddl_problem: str
    grammar: str


Identity = tuple[Path, int, int]
"""A file, when it was last changed (ns), and its size in bytes."""
_games: OrderedDict[Identity, Game] = OrderedDict()
"""Games of this process, the last opened last."""


def identify(path: Path) -> Identity:
    """What a loaded game is known by: its file, as it was then. Raises DataError."""
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return path, status.st_mtime_ns, status.st_size


def open_game(path: Path, cache: Cache) -> Game:
    """The game in a file, loaded if this process does not have it.

    Each call needs one `release`. Raises DataError.
    """
    identity = identify(path)
    game = _games.get(identity)
    if game is None:
        with undisturbed():
            game = _load(path, cache)
        _games[identity] = game
    _games.move_to_end(identity)
    game.users += 1
    return game


def release(game: Game) -> None:
    """Ends one use of a game; closes games that have not been used for longest."""
    game.users -= 1
    close_idle(IDLE_GAMES)


def close_idle(keep: int = 0) -> None:
    """Closes all games that are not being played, but for the last `keep` opened."""
    idle = [identity for identity, game in _games.items() if not game.users]
    # The last opened stay: a task is often opened again for its next trajectory.
    for identity in idle[: max(0, len(idle) - keep)]:
        _games.pop(identity).close()


def _load(path: Path, cache: Cache) -> Game:
    content = read_regular(path)
    try:
        file = msgspec.json.decode(content, type=_File)
        grammar, sentence = split_sentence(file.grammar)
        texts = (file.pddl_domain, file.pddl_problem)
        translation = cache.get(Translation, texts, lambda: translate(*texts))
        renderer = _renderer(grammar, tuple(translation.hierarchy), cache)
        return Game(translation, renderer, sentence)
    except (msgspec.MsgspecError, DataError) as error:
        raise DataError(f"{path}: {error}") from error


@lru_cache(maxsize=8)
def _renderer(
    grammar: str,
    hierarchy: tuple[Supertypes, ...],
    cache: Cache,
) -> Renderer:
    return Renderer(load_grammar(grammar, cache), Hierarchy(hierarchy))
