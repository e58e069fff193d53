"""One game as a graph of visited states, shared by everyone who plays it in this
process.

A state is what the planner knows (a number from its library) together with the facts
(an integer): facts depend on the past, so neither says the other. What is admissible,
whether it is won, what an action leads to and what is read on arriving there are worked
out when first asked for and kept. A snapshot is a reference to a state.

Games nobody plays are kept for a while, because a task is often opened again soon; the
oldest lends its copy of the library to the next game.
"""

from collections import OrderedDict
from functools import lru_cache, reduce
from operator import xor
from pathlib import Path

import msgspec

from agentcli.environments.alfworld import statekey
from agentcli.environments.alfworld.commands import NOTHING, is_accepted, only_looks
from agentcli.environments.alfworld.fast import library
from agentcli.environments.alfworld.fast.cache import Cache
from agentcli.environments.alfworld.fast.facts import Entities, FactTable, Hierarchy
from agentcli.environments.alfworld.fast.grammar import load_grammar, split_sentence
from agentcli.environments.alfworld.fast.render import Render, Renderer
from agentcli.environments.alfworld.fast.translation import Translation
from agentcli.environments.alfworld.fast.translator import load_translation, undisturbed
from agentcli.environments.protocol import Observation
from agentcli.errors import DataError

IDLE_GAMES = 4
"""Games kept that nobody plays."""
MOST_STATES = 10_000
"""States kept per game; beyond that all are forgotten, and found again when they are
met.
"""


class Operation:
    """One ground operator: over what, what it answers, what it does to facts."""

    __slots__ = ("entities", "feedback", "kept_added", "words")

    def __init__(self, entities: Entities, words: str | None, feedback: Render) -> None:
        self.entities = entities
        self.words = words
        """How it is typed, where that is always the same."""
        self.feedback = feedback
        self.kept_added: tuple[int, int] | None = None
        """FactTable.masks of its effects, known once it was applied."""


class State:
    """One true state of a game and what was found out about it so far."""

    __slots__ = (
        "actions",
        "commands",
        "edges",
        "facts",
        "game",
        "inventory",
        "key",
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
        self.commands, self.actions = game.menu(tuple(game.planner.operators()), facts)
        """What can be typed -> operator (the first where several are typed alike); what
        is worth listing.
        """
        self.edges: dict[str, tuple[State, Observation]] = {}
        self.stuck: Observation | None = None
        """What is read after anything that cannot be done here."""


class Game:
    """One loaded game: a copy of the planner, the tables of its task, the states
    visited.
    """

    def __init__(
        self, translation: Translation, renderer: Renderer, sentence: str
    ) -> None:
        self.users = 0
        self.table = FactTable(translation, sentence)
        self._schemas = translation.actions
        self._operators = translation.operators.split("\n")
        self._most_effects = translation.most_effects
        self._renderer = renderer
        names = statekey.relevant(translation.physics, renderer.queries)
        self._relevant = self.table.relevant(names)
        self._readable = self._relevant & sum(map(self.table.block, statekey.READABLE))
        self._varying = renderer.varying(translation.physics.changed)
        self._operations: list[Operation | None] = [None] * len(self._operators)
        self._words: dict[tuple[int, ...], str] = {}
        self._menus: dict[object, tuple[dict[str, int], tuple[str, ...]]] = {}
        self._states: dict[tuple[int, int], State] = {}
        self.planner = library.borrow()
        self.planner.load(translation.sas)
        initial = self.table.initial
        mark = reduce(xor, [translation.marks.get(name, 0) for name in names], 0)
        self.root = self._state(initial, mark)
        self.opening = _observe(
            self.root, renderer.rules("intro", ())(self.table, initial, ())
        )

    def step(self, state: State, action: str) -> tuple[State, Observation]:
        """Where an action leads and what is read there; exactly TextWorld's answer,
        also to nonsense.
        """
        command = action.strip()
        known = state.edges.get(command)
        if known is not None:
            return known
        operator = state.commands.get(command)
        if operator is None:
            if state.stuck is None:
                state.stuck = _observe(state, NOTHING, accepted=False)
            return state, state.stuck
        operation = self._operation(operator)
        facts = self._apply(state, operator, operation)
        changed = (state.facts ^ facts) & self._relevant
        after = self._state(facts, state.mark ^ self.table.mark(changed))
        text = operation.feedback(self.table, facts, operation.entities)
        accepted = is_accepted(command, state.actions, text)
        observation = _observe(
            after, text, accepted=accepted, looked=accepted and only_looks(command)
        )
        state.edges[command] = after, observation
        return after, observation

    def look_again(self, state: State, observation: Observation) -> Observation:
        """The observation that led to a state, with what the planner says of that state
        now.
        """
        self.planner.go(state.number)
        won = self.planner.won()
        _, actions = self.menu(tuple(self.planner.operators()), state.facts)
        return msgspec.structs.replace(
            observation,
            actions=actions,
            state=state.key,
            canonical=observation.text + state.inventory,
            reward=float(won),
            end="success" if won else None,
        )

    def facts(self, state: State) -> list[statekey.Fact]:
        """All facts of a state under display names, sorted."""
        return sorted(self.table.listed(state.facts))

    def describe(self, facts: int, mark: int) -> tuple[str, str]:
        """The exact key of a state, and what its canonical state adds to the
        observation.
        """
        shown = self.table.listed(facts & self._readable)
        return statekey.describe(shown, mark), statekey.inventory(shown)

    def menu(
        self, operators: tuple[int, ...], facts: int
    ) -> tuple[dict[str, int], tuple[str, ...]]:
        """Commands of the applicable operators, and those worth listing. Most states
        share theirs with others.
        """
        key: object = (operators, facts) if self._varying else operators
        found = self._menus.get(key)
        if found is None:
            commands: dict[str, int] = {}
            seen: set[str] = set()
            for operator in operators:
                name = self._operators[operator]
                if name not in seen:
                    seen.add(name)
                    commands.setdefault(self._command(operator, facts), operator)
            found = self._menus[key] = (
                commands,
                tuple(sorted(commands.keys() - {"help"})),
            )
        return found

    def close(self) -> None:
        """Hands the copy of the planner on; no state of this game can be used
        afterwards.
        """
        library.give_back(self.planner)

    def _apply(self, state: State, operator: int, operation: Operation) -> int:
        """Moves the planner; returns the facts afterwards."""
        self.planner.go(state.number)
        if operation.kept_added is None:
            effects = self.planner.apply_reporting(operator, self._most_effects)
            operation.kept_added = self.table.masks(effects)
        else:
            self.planner.apply(operator)
        kept, added = operation.kept_added
        return state.facts & kept | added

    def _state(self, facts: int, mark: int) -> State:
        """The state that the planner is in now."""
        number = self.planner.state()
        state = self._states.get((number, facts))
        if state is None:
            if len(self._states) >= MOST_STATES:
                for old in self._states.values():
                    old.edges.clear()
                self._states.clear()
                self._menus.clear()
            state = self._states[number, facts] = State(self, number, facts, mark)
        return state

    def _command(self, operator: int, facts: int) -> str:
        operation = self._operation(operator)
        if operation.words is not None:
            return operation.words
        schema = self._schemas[int(self._operators[operator].split()[0])]
        render, _, _ = self._renderer.action(
            schema.action, schema.parameters[: len(operation.entities)]
        )
        return render(self.table, facts, operation.entities)

    def _operation(self, operator: int) -> Operation:
        """Compiled when first met: a game has thousands of operators, an episode meets
        dozens.
        """
        operation = self._operations[operator]
        if operation is None:
            position, *things = map(int, self._operators[operator].split())
            schema, entities = self._schemas[position], tuple(things)
            command, feedback, used = self._renderer.action(
                schema.action, schema.parameters[: len(entities)]
            )
            words = None
            if schema.action not in self._varying:
                key = (position, *[entities[place] for place in used])
                words = self._words.get(key)
                if words is None:
                    words = self._words[key] = command(
                        self.table, self.table.initial, entities
                    )
            operation = self._operations[operator] = Operation(
                entities, words, feedback
            )
        return operation


def _observe(
    state: State, text: str, *, accepted: bool = True, looked: bool = False
) -> Observation:
    return Observation(
        text=text,
        actions=state.actions,
        state=state.key,
        canonical=text + state.inventory,
        accepted=accepted,
        looked=looked,
        reward=float(state.won),
        end="success" if state.won else None,
    )


class _File(msgspec.Struct):
    """What is read of a game.tw-pddl file."""

    pddl_domain: str
    pddl_problem: str
    grammar: str


Identity = tuple[Path, int, int]
"""A file, when it was last changed (ns), and its size in bytes."""
_games: OrderedDict[Identity, Game] = OrderedDict()
"""Games of this process, the last opened last."""


def identify(path: Path) -> Identity:
    """What tells whether a game file is still the one that was loaded. Raises
    DataError.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return path, status.st_mtime_ns, status.st_size


def open_game(path: Path, cache: Cache) -> Game:
    """The game in a file, loaded where this process does not have it; to be released
    once. Raises DataError.
    """
    identity = identify(path)
    game = _games.get(identity)
    if game is None:
        with undisturbed():
            game = _games[identity] = _load(path, cache)
    _games.move_to_end(identity)
    game.users += 1
    return game


def release(game: Game) -> None:
    """Ends one use of a game; closes games that nobody has used for longest."""
    game.users -= 1
    close_idle(IDLE_GAMES)


def close_idle(keep: int = 0) -> None:
    """Closes all games that nobody plays but the last `keep` opened."""
    idle = [identity for identity, game in _games.items() if not game.users]
    for identity in idle[: max(0, len(idle) - keep)]:
        _games.pop(identity).close()


def _load(path: Path, cache: Cache) -> Game:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        file = msgspec.json.decode(content, type=_File)
        text, sentence = split_sentence(file.grammar)
        translation = load_translation(file.pddl_domain, file.pddl_problem, cache)
        return Game(
            translation, _renderer(text, tuple(translation.hierarchy), cache), sentence
        )
    except (msgspec.MsgspecError, DataError) as error:
        raise DataError(f"{path}: {error}") from error


@lru_cache(maxsize=8)
def _renderer(
    grammar: str, hierarchy: tuple[tuple[str, tuple[str, ...]], ...], cache: Cache
) -> Renderer:
    return Renderer(load_grammar(grammar, cache), Hierarchy(hierarchy))
