"""The text grammar of a game as plain data: rules, command templates, feedback.

TextWorld parses the grammar. This file copies the result into structs that can be kept
on disk, because parsing takes longer than playing a hundred episodes. Games differ only
in their task sentence, so it is taken out before parsing and put back when a text is
rendered: one parse serves a whole data set.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from agentcli.environments.cache import Cache
from agentcli.worlds.alfworld.fast.facts import Scope

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

    def queries(self) -> list[Query]:
        """Every query that a text can depend on."""
        queries: list[Query] = []
        for action in self.actions.values():
            queries += _queries((*action.command, *action.feedback))
        for rules in self.rules.values():
            for rule in rules:
                queries += [rule.condition, *_queries(rule.body)]
        return [query for query in queries if query]


def _queries(symbols: Iterable[Symbol]) -> Iterator[Query]:
    for symbol in symbols:
        each = symbol.each if isinstance(symbol, Enumeration) else symbol
        if isinstance(each, Each):
            yield each.query


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
