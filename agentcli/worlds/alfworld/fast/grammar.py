"""The text grammar of a game as plain data, compiled into closures over facts.

TextWorld parses the grammar. The result is copied into structs that can be kept on
disk, because parsing takes longer than playing a hundred episodes. Games differ only in
their task sentence, so it is taken out before parsing and put back when a text is
rendered: one parse serves a whole data set.

TextWorld derives a text by copying and re-parsing symbols. Here each rule is compiled
once per scope (the placeholders that are bound when it is reached) into a function,
text = render(table, facts, entities), and serves all games with that grammar. What a
scope binds is known beforehand, so an entity is a position in a tuple. Expressions are
compiled from Python's syntax tree, never evaluated as code.
"""

import ast
import json
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import msgspec

from agentcli.environments.cache import Cache
from agentcli.errors import EngineError
from agentcli.worlds.alfworld.fast.facts import (
    Entities,
    FactTable,
    Hierarchy,
    Pattern,
    Scope,
)

SENTENCE = "AGENTCLI TASK SENTENCE"
"""Stands in rules where the game's own task sentence belongs."""
_TASK = re.compile(r'("rhs":\s*"Your task is to: )([^"\\;|<>\[\]#{}\t\n]+)(")')

Atom = tuple[str, Scope]
"""One conjunct of a query: predicate and its placeholders."""
Query = tuple[Atom, ...]


class Text(msgspec.Struct, tag=True, frozen=True):
    """Words as they are."""

    words: str


class Rules(msgspec.Struct, tag=True, frozen=True):
    """The first applicable rule of a name."""

    name: str


class Value(msgspec.Struct, tag=True, frozen=True):
    """A Python expression over the entities in scope: `o.indefinite + ' ' + o.name`."""

    expression: str


class Each(msgspec.Struct, tag=True, frozen=True):
    """The body once per answer to a query (once where there is no query)."""

    body: Rules | Value
    query: Query = ()


class Enumeration(msgspec.Struct, tag=True, frozen=True):
    """The bodies as a list in words: a, b, and c."""

    each: Each


Symbol = Text | Rules | Value | Each | Enumeration
Symbols = tuple[Symbol, ...]


class Rule(msgspec.Struct, frozen=True):
    """One right-hand side and the query that must have an answer for it to apply."""

    body: Symbols
    condition: Query = ()


class Action(msgspec.Struct, frozen=True):
    """How one action is typed and what it answers."""

    command: Symbols
    feedback: Symbols


class Grammar(msgspec.Struct, frozen=True):
    """All rules by name, all actions by lower-case name."""

    rules: dict[str, tuple[Rule, ...]]
    actions: dict[str, Action]

    def predicates(self) -> set[str]:
        """The predicates that any text can depend on."""
        symbols: list[Symbol] = [Rules(name) for name in self.rules]
        for action in self.actions.values():
            symbols += [*action.command, *action.feedback]
        return self.asked(symbols)

    def asked(self, symbols: Iterable[Symbol]) -> set[str]:
        """The predicates that a text can depend on."""
        predicates: set[str] = set()
        waiting = list(symbols)
        entered = set()
        while waiting:
            symbol = waiting.pop()
            if isinstance(symbol, Enumeration):
                waiting += [symbol.each, *map(Rules, _LIST_RULES)]
            elif isinstance(symbol, Each):
                predicates.update(atom[0] for atom in symbol.query)
                waiting.append(symbol.body)
            elif isinstance(symbol, Rules) and symbol.name not in entered:
                entered.add(symbol.name)
                for rule in self.rules.get(symbol.name, ()):
                    predicates.update(atom[0] for atom in rule.condition)
                    waiting += rule.body
        return predicates


def split_sentence(grammar: str) -> tuple[str, str]:
    """(grammar text with SENTENCE in place of the task sentence, the sentence).

    The text as it is and "" where it has no plain sentence.
    """
    sentences = _TASK.findall(grammar)
    if len(sentences) != 1:
        return grammar, ""
    return _TASK.sub(rf"\g<1>{SENTENCE}\g<3>", grammar), sentences[0][1]


def load_grammar(text: str, cache: Cache) -> Grammar:
    """The grammar of a game as data; parsed by TextWorld if the cache lacks it."""

    def parse() -> Grammar:
        from textworld.envs.pddl.logic import GameLogic

        return read_logic(GameLogic(domain="", grammar=text))

    return cache.get(Grammar, (text,), parse)


def read_logic(logic: Any) -> Grammar:
    """Copies what TextWorld parsed (textworld.envs.pddl.logic.GameLogic)."""
    rules = {}
    for name, parsed in logic.grammar._rules.items():
        rules[name] = tuple(
            Rule(_symbols(rule.rhs), _query(rule.condition)) for rule in parsed
        )
    actions = {}
    for name, action in logic.actions.items():
        command = _parse(action.template)
        actions[name] = Action(command, _parse(action.feedback_rule))
    return Grammar(rules, actions)


def _parse(text: str) -> Symbols:
    from textworld.envs.pddl.textgen import ContextSensitiveGrammar

    rules = ContextSensitiveGrammar.parse(json.dumps({"text": [{"rhs": text}]}))._rules
    return _symbols(rules["text"][0].rhs)


def _symbols(parsed: list[object]) -> Symbols:
    return tuple(map(_symbol, parsed))


def _symbol(parsed: object) -> Symbol:
    from textworld.envs.pddl import textgen

    if isinstance(parsed, textgen.TerminalSymbol):
        return Text(str(parsed.symbol))
    if isinstance(parsed, textgen.NonterminalSymbol):
        return Rules(str(parsed.symbol))
    if isinstance(parsed, textgen.EvalSymbol):
        return Value(parsed.expression)
    # Only a query's answers are listed, and only rules and values stand in them.
    if isinstance(parsed, textgen.ListSymbol):
        each = _symbol(parsed.symbol)
        assert isinstance(each, Each)
        return Enumeration(each)
    assert isinstance(parsed, textgen.ConditionalSymbol)
    body = _symbol(parsed.expression)
    assert isinstance(body, Rules | Value)
    return Each(body, _query(parsed.given))


def _query(text: str | None) -> Query:
    if not text:
        return ()
    from textworld.logic import Rule as LogicRule

    atoms = []
    for atom in LogicRule.parse_conjunctive_query(text).preconditions:
        placeholders = tuple((item.name, item.type) for item in atom.parameters)
        atoms.append((atom.name, placeholders))
    return tuple(atoms)


Render = Callable[[FactTable, int, Entities], str]
Search = Callable[[FactTable, int, Entities], list[Entities]]
"""The entities in scope, extended by each answer to a query."""

_LIST_RULES = ("list_empty", "list_separator", "list_last_separator")


class Phrases(NamedTuple):
    """The texts of an action over one scope."""

    command: Render
    feedback: Render
    used: tuple[int, ...]
    """Places of the parameters that the command depends on."""


class Renderer:
    """All texts of one grammar over one type hierarchy."""

    def __init__(self, grammar: Grammar, hierarchy: Hierarchy) -> None:
        self.grammar = grammar
        self.hierarchy = hierarchy
        self.predicates = grammar.predicates()
        self._commands_ask = {
            name: grammar.asked(action.command)
            for name, action in grammar.actions.items()
        }
        """Action -> what its command asks for."""
        self._rules: dict[tuple[str, Scope], Render] = {}
        self.action = cache(self._action)
        """The texts of an action, by its name and its parameters."""

    def _action(self, name: str, scope: Scope) -> Phrases:
        action = self.grammar.actions[name]
        return Phrases(
            command=self.text(action.command, scope),
            feedback=self.text(action.feedback, scope),
            used=self._used(action.command, scope),
        )

    def varying(self, changed: Iterable[str]) -> set[str]:
        """Actions whose command asks for predicates that `changed` names."""
        touched = {form for name in changed for form in (name, f"not_{name}")}
        return {
            name
            for name, predicates in self._commands_ask.items()
            if not touched.isdisjoint(predicates)
        }

    def text(self, symbols: Symbols, scope: Scope) -> Render:
        """A sequence of symbols."""
        parts = [self._symbol(symbol, scope) for symbol in symbols]
        if len(parts) == 1:
            return parts[0]
        return lambda table, facts, entities: "".join(
            [part(table, facts, entities) for part in parts]
        )

    def rules(self, name: str, scope: Scope) -> Render:
        """The first applicable rule of `name`.

        Raises EngineError where TextWorld stops too: no such rule, or none that
        applies.
        """
        compiled = self._rules.get((name, scope))
        if compiled is None:
            # Rules may refer to themselves, so one is compiled when first rendered.
            def late(table: FactTable, facts: int, entities: Entities) -> str:
                if self._rules[name, scope] is late:
                    self._rules[name, scope] = self._choice(name, scope)
                return self._rules[name, scope](table, facts, entities)

            compiled = late
            self._rules[name, scope] = late
        return compiled

    def _used(self, symbols: Symbols, scope: Scope) -> tuple[int, ...]:
        """Positions in the scope that a text can depend on."""
        names: set[str] = set()
        for symbol in symbols:
            each = symbol
            plain = True
            if isinstance(symbol, Enumeration):
                each = symbol.each
                plain = all(map(self._is_constant, _LIST_RULES))
            value = each.body if isinstance(each, Each) else each
            # What a rule depends on is not worked out: it may be all.
            if not plain or isinstance(value, Rules):
                return tuple(range(len(scope)))
            if isinstance(each, Each):
                for _, placeholders in each.query:
                    names.update(name for name, _ in placeholders)
            if isinstance(value, Value):
                nodes = ast.walk(_parsed(value.expression))
                names.update(node.id for node in nodes if isinstance(node, ast.Name))
        return tuple(
            position for position, (name, _) in enumerate(scope) if name in names
        )

    def _is_constant(self, name: str) -> bool:
        rules = self.grammar.rules.get(name, ())
        return all(isinstance(symbol, Text) for rule in rules for symbol in rule.body)

    def _choice(self, name: str, scope: Scope) -> Render:
        rules = self.grammar.rules.get(name)
        if not rules:
            raise EngineError(f"the game's grammar has no rule {name!r}")
        options = []
        for rule in rules:
            condition, _ = self._search(rule.condition, scope)
            options.append((condition, self.text(rule.body, scope)))
        # A rule without a condition always applies, so none after it is reached.
        if not rules[0].condition:
            return options[0][1]

        def choose(table: FactTable, facts: int, entities: Entities) -> str:
            for condition, text in options:
                if condition(table, facts, entities):
                    return text(table, facts, entities)
            raise EngineError(f"no rule {name!r} of the game's grammar applies")

        return choose

    def _symbol(self, symbol: Symbol, scope: Scope) -> Render:
        if isinstance(symbol, Text):
            words = symbol.words
            if SENTENCE in words:
                return lambda table, facts, entities: words.replace(
                    SENTENCE, table.sentence
                )
            return lambda table, facts, entities: words
        if isinstance(symbol, Rules):
            return self.rules(symbol.name, scope)
        if isinstance(symbol, Value):
            return _expression(symbol.expression, scope)
        if isinstance(symbol, Enumeration):
            return self._enumeration(symbol, scope)
        search, inner = self._search(symbol.query, scope)
        body = self._symbol(symbol.body, inner)
        return lambda table, facts, entities: "".join(
            [body(table, facts, answer) for answer in search(table, facts, entities)]
        )

    def _enumeration(self, symbol: Enumeration, scope: Scope) -> Render:
        search, inner = self._search(symbol.each.query, scope)
        body = self._symbol(symbol.each.body, inner)
        empty, between, last = (self.rules(name, scope) for name in _LIST_RULES)

        def enumerate_(table: FactTable, facts: int, entities: Entities) -> str:
            answers = search(table, facts, entities)
            words = [body(table, facts, answer) for answer in answers]
            if not words:
                return empty(table, facts, entities)
            if len(words) == 1:
                return words[0]
            head = between(table, facts, entities).join(words[:-1])
            return head + last(table, facts, entities) + words[-1]

        return enumerate_

    def _search(self, query: Query, scope: Scope) -> tuple[Search, Scope]:
        """A query as a function, and the scope of its answers.

        Distinct placeholders are distinct entities.
        """
        patterns = []
        for predicate, placeholders in query:
            bound = len(scope)
            for placeholder in placeholders:
                if placeholder not in scope:
                    scope = (*scope, placeholder)
            names = [scope.index(placeholder) for placeholder in placeholders]
            types = tuple(kind for _, kind in placeholders)
            patterns.append(Pattern(predicate, types, names, bound))
        hierarchy = self.hierarchy

        def search(table: FactTable, facts: int, entities: Entities) -> list[Entities]:
            answers = [entities]
            for pattern in patterns:
                index = table.index(pattern.shape, hierarchy)
                extended = []
                for answer in answers:
                    known = pattern.known(answer)
                    for groups in index:
                        group = groups.get(known)
                        if group is None:
                            continue
                        for new in group.among(facts):
                            # Distinct placeholders are distinct entities, also across
                            # the patterns.
                            for thing in new:
                                if thing in answer:
                                    break
                            else:
                                extended.append(answer + new)
                answers = extended
                if not answers:
                    break
            return answers

        return search, scope


_ATTRIBUTES: dict[str, Callable[[FactTable, int], str]] = {
    "name": lambda table, thing: table.names[thing],
    "id": lambda table, thing: table.ids[thing],
    "type": lambda table, thing: table.types[thing],
    "definite": lambda table, thing: "the",
    "indefinite": lambda table, thing: "a",
}


def _expression(text: str, scope: Scope) -> Render:
    """Compiles entity names, their attributes, strings, +, `and` and `or`.

    Raises EngineError for anything else.
    """
    slots = {name: position for position, (name, _) in enumerate(scope)}

    def build(node: ast.expr) -> Render:
        match node:
            case ast.Constant(value=str(words)):
                return lambda table, facts, entities: words
            case ast.Name(id=name) if name in slots:
                slot = slots[name]
                return lambda table, facts, entities: table.names[entities[slot]]
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if (
                name in slots and attribute in _ATTRIBUTES
            ):
                slot = slots[name]
                read = _ATTRIBUTES[attribute]
                return lambda table, facts, entities: read(table, entities[slot])
            case ast.BinOp(left=first, op=ast.Add(), right=second):
                left = build(first)
                right = build(second)
                return lambda table, facts, entities: (
                    left(table, facts, entities) + right(table, facts, entities)
                )
            case ast.BoolOp(op=operator, values=values):
                return _first(isinstance(operator, ast.Or), [*map(build, values)])
        raise EngineError(
            f"the fast engine cannot compile {text!r} of the game's grammar; set "
            "engine: stock"
        )

    return build(_parsed(text))


def _first(wanted: bool, parts: list[Render]) -> Render:
    """The text of Python's `or` (`wanted`: the first that is not empty) or `and`."""

    def choose(table: FactTable, facts: int, entities: Entities) -> str:
        for part in parts:
            text = part(table, facts, entities)
            if bool(text) == wanted:
                break
        return text

    return choose


def _parsed(expression: str) -> ast.expr:
    return ast.parse(expression.strip(), mode="eval").body
