"""The text grammar compiled into closures: text = render(table, facts, entities in
scope).

TextWorld derives a text by copying and re-parsing symbols; here each rule is compiled
once per scope (the placeholders that are bound when it is reached) and serves all games
with that grammar. What a scope binds is known beforehand, so an entity is a position in
a tuple. Expressions are compiled from Python's syntax tree, never evaluated as code.
"""

import ast
from collections.abc import Callable, Iterable
from functools import reduce

from agentcli.environments.alfworld.fast.facts import (
    Entities,
    FactTable,
    Hierarchy,
    Pattern,
)
from agentcli.environments.alfworld.fast.grammar import (
    SENTENCE,
    Atom,
    Each,
    Enumeration,
    Grammar,
    Rules,
    Symbol,
    Text,
    Value,
)
from agentcli.environments.alfworld.fast.translation import Scope
from agentcli.errors import EngineError

Render = Callable[[FactTable, int, Entities], str]
Search = Callable[[FactTable, int, Entities], list[Entities]]
"""The entities in scope, extended by each answer to a query."""

_LIST_RULES = ("list_empty", "list_separator", "list_last_separator")


class Renderer:
    """All texts of one grammar over one type hierarchy."""

    def __init__(self, grammar: Grammar, hierarchy: Hierarchy) -> None:
        self.grammar = grammar
        self.hierarchy = hierarchy
        self.queries = grammar.queries()
        self._asks = {
            name: self._asked(action.command)
            for name, action in grammar.actions.items()
        }
        self._rules: dict[tuple[str, Scope], Render] = {}
        self._actions: dict[
            tuple[str, Scope], tuple[Render, Render, tuple[int, ...]]
        ] = {}

    def action(self, name: str, scope: Scope) -> tuple[Render, Render, tuple[int, ...]]:
        """(command, feedback, places of the parameters that the command depends on) of
        an action.
        """
        found = self._actions.get((name, scope))
        if found is None:
            action = self.grammar.actions[name]
            command, feedback = (
                self.text(action.command, scope),
                self.text(action.feedback, scope),
            )
            found = self._actions[name, scope] = (
                command,
                feedback,
                self._uses(action.command, scope),
            )
        return found

    def varying(self, changed: Iterable[str]) -> set[str]:
        """Actions whose command asks for predicates that `changed` names, so that its
        text may change.
        """
        touched = {form for name in changed for form in (name, f"not_{name}")}
        return {
            name for name, asks in self._asks.items() if not touched.isdisjoint(asks)
        }

    def text(self, symbols: tuple[Symbol, ...], scope: Scope) -> Render:
        """A sequence of symbols."""
        parts = [self._symbol(symbol, scope) for symbol in symbols]
        if len(parts) == 1:
            return parts[0]
        return lambda table, facts, entities: "".join(
            [part(table, facts, entities) for part in parts]
        )

    def rules(self, name: str, scope: Scope) -> Render:
        """The first applicable rule of `name`; compiled when first rendered, for rules
        may refer to themselves.

        Raises EngineError where TextWorld stops too: no such rule, or none that
        applies.
        """
        compiled = self._rules.get((name, scope))
        if compiled is None:

            def late(table: FactTable, facts: int, entities: Entities) -> str:
                if self._rules[name, scope] is late:
                    self._rules[name, scope] = self._choice(name, scope)
                return self._rules[name, scope](table, facts, entities)

            compiled = self._rules[name, scope] = late
        return compiled

    def _asked(self, symbols: tuple[Symbol, ...]) -> set[str]:
        """Predicates that a text can depend on."""
        found: set[str] = set()
        waiting, seen = list(symbols), set()
        while waiting:
            symbol = waiting.pop()
            if isinstance(symbol, Enumeration):
                waiting += [symbol.each, *map(Rules, _LIST_RULES)]
            elif isinstance(symbol, Each):
                found.update(atom[0] for atom in symbol.query)
                waiting.append(symbol.body)
            elif isinstance(symbol, Rules) and symbol.name not in seen:
                seen.add(symbol.name)
                for rule in self.grammar.rules.get(symbol.name, ()):
                    found.update(atom[0] for atom in rule.condition)
                    waiting += rule.body
        return found

    def _uses(self, symbols: tuple[Symbol, ...], scope: Scope) -> tuple[int, ...]:
        """Positions in the scope that a text can depend on; all of them where it goes
        through rules.
        """
        names: set[str] = set()
        for symbol in symbols:
            if isinstance(symbol, Enumeration) and not all(
                map(self._constant, _LIST_RULES)
            ):
                return tuple(range(len(scope)))
            each = symbol.each if isinstance(symbol, Enumeration) else symbol
            value = each.body if isinstance(each, Each) else each
            if isinstance(value, Rules):
                return tuple(range(len(scope)))
            if isinstance(each, Each):
                names.update(
                    name for _, placeholders in each.query for name, _ in placeholders
                )
            if isinstance(value, Value):
                names.update(
                    node.id
                    for node in ast.walk(_parsed(value.expression))
                    if isinstance(node, ast.Name)
                )
        return tuple(
            position for position, (name, _) in enumerate(scope) if name in names
        )

    def _constant(self, name: str) -> bool:
        rules = self.grammar.rules.get(name, ())
        return all(isinstance(symbol, Text) for rule in rules for symbol in rule.body)

    def _choice(self, name: str, scope: Scope) -> Render:
        rules = self.grammar.rules.get(name)
        if not rules:
            raise EngineError(f"the game's grammar has no rule {name!r}")
        options = [
            (self._search(rule.condition, scope)[0], self.text(rule.body, scope))
            for rule in rules
        ]
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
            [body(table, facts, found) for found in search(table, facts, entities)]
        )

    def _enumeration(self, symbol: Enumeration, scope: Scope) -> Render:
        search, inner = self._search(symbol.each.query, scope)
        body = self._symbol(symbol.each.body, inner)
        empty, between, last = (self.rules(name, scope) for name in _LIST_RULES)

        def enumerate_(table: FactTable, facts: int, entities: Entities) -> str:
            words = [
                body(table, facts, found) for found in search(table, facts, entities)
            ]
            if len(words) > 1:
                head = between(table, facts, entities).join(words[:-1])
                return head + last(table, facts, entities) + words[-1]
            return words[0] if words else empty(table, facts, entities)

        return enumerate_

    def _search(self, query: tuple[Atom, ...], scope: Scope) -> tuple[Search, Scope]:
        """A query as a function, and the scope of its answers. Distinct placeholders
        are distinct entities.
        """
        patterns = []
        for predicate, placeholders in query:
            bound = len(scope)
            scope += tuple(
                dict.fromkeys(
                    placeholder
                    for placeholder in placeholders
                    if placeholder not in scope
                )
            )
            names = [scope.index(placeholder) for placeholder in placeholders]
            patterns.append(
                Pattern(
                    predicate, tuple(kind for _, kind in placeholders), names, bound
                )
            )
        hierarchy = self.hierarchy

        def search(table: FactTable, facts: int, entities: Entities) -> list[Entities]:
            answers = [entities]
            for pattern in patterns:
                signatures = table.index(pattern, hierarchy)
                found = []
                for answer in answers:
                    known = pattern.known(answer)
                    for groups in signatures:
                        group = groups.get(known)
                        for new in group.among(facts) if group is not None else ():
                            for thing in new:
                                if thing in answer:
                                    break
                            else:
                                found.append(answer + new)
                if not found:
                    return found
                answers = found
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
    """Compiles entity names, their attributes, strings, +, `and` and `or`. Raises
    EngineError for anything else.
    """
    slots = {name: position for position, (name, _) in enumerate(scope)}

    def build(node: ast.expr) -> Render:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value
            return lambda table, facts, entities: words
        if isinstance(node, ast.Name) and node.id in slots:
            slot = slots[node.id]
            return lambda table, facts, entities: table.names[entities[slot]]
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in slots
        ):
            place, attribute = slots[node.value.id], _ATTRIBUTES.get(node.attr)
            if attribute:
                return lambda table, facts, entities: attribute(table, entities[place])
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = build(node.left), build(node.right)
            return lambda table, facts, entities: (
                left(table, facts, entities) + right(table, facts, entities)
            )
        if isinstance(node, ast.BoolOp):
            parts = [build(value) for value in node.values]
            if isinstance(node.op, ast.Or):
                return lambda *scope: reduce(
                    lambda found, part: found or part(*scope),
                    parts[1:],
                    parts[0](*scope),
                )
            return lambda *scope: reduce(
                lambda found, part: found and part(*scope), parts[1:], parts[0](*scope)
            )
        raise EngineError(
            f"the fast engine cannot compile {text!r} of the game's grammar; set "
            "engine: stock"
        )

    return build(_parsed(text))


def _parsed(expression: str) -> ast.expr:
    return ast.parse(expression.strip(), mode="eval").body
