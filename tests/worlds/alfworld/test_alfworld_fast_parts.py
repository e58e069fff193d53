"""The parts of the fast engine against what TextWorld does: types, facts as bits, the grammar, the cache, the library."""

import random
from pathlib import Path

import msgspec
import pytest
from agentcli.environments.cache import Cache
from agentcli.worlds.alfworld.draw import wheel
from agentcli.worlds.alfworld.fast import library
from agentcli.worlds.alfworld.fast.facts import FactTable, Hierarchy, Signature, Translation
from agentcli.worlds.alfworld.fast.grammar import SENTENCE, Grammar, Renderer, Text, load_grammar, split_sentence
from agentcli.worlds.alfworld.fast.translator import translate
from agentcli.worlds.alfworld.statekey import Physics
from alfworld_games import game_cache, small_world, some_of_each_kind  # noqa: F401
from hypothesis import given, settings
from hypothesis import strategies as st
from refusal import refusal

DOMAIN = """(define (domain toy) (:requirements :adl :typing) (:types box thing)
 (:predicates (in ?t - thing ?b - box) (wet ?t - thing))
 (:action move :parameters (?t - thing ?a - box ?b - box) :precondition (in ?t ?a)
  :effect (and (not (in ?t ?a)) (in ?t ?b)))
 (:action wash :parameters (?t - thing) :precondition () :effect (wet ?t)))"""
PROBLEM = """(define (problem p) (:domain toy) (:objects a_bar_1 b_bar_1 - box t_bar_1 t_bar_2 - thing)
 (:init (in t_bar_1 a_bar_1) (in t_bar_2 b_bar_1)) (:goal (and (in t_bar_1 b_bar_1) (wet t_bar_2))))"""

hierarchies = st.lists(
    st.tuples(st.sampled_from("bcdef"), st.lists(st.sampled_from("abcdef"), max_size=2, unique=True)),
    max_size=5,
    unique_by=lambda kind: kind[0],
).map(lambda kinds: (("a", ()), *((name, tuple(p for p in parents if p < name)) for name, parents in sorted(kinds))))


@given(hierarchies, st.integers(1, 2), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_types_are_enumerated_as_textworld_does(
    kinds: tuple[tuple[str, tuple[str, ...]], ...], count: int, rng: random.Random
) -> None:
    from textworld.logic import Type, TypeHierarchy

    theirs = TypeHierarchy()
    for name, parents in kinds:
        theirs.add(Type(name, parents))
    asked = tuple(rng.choice(kinds)[0] for _ in range(count))
    expected = [
        tuple(kind.name for kind in found) for found in theirs.multi_subtypes([theirs.get(kind) for kind in asked])
    ]
    assert Hierarchy(kinds).below(asked) == expected


def table(atoms: int) -> FactTable:
    """Facts p(0), p(1), ..."""
    signature = Signature("p", ("t",), b"".join(k.to_bytes(2, "little") for k in range(atoms)), atoms)
    names = [f"t{k}" for k in range(atoms)]
    ones = ((1 << atoms) - 1).to_bytes(atoms // 8 + 1, "little")
    physics = Physics((), (), {})
    return FactTable(
        Translation(b"", names, ["t"] * atoms, names, [], [signature], ones, b"", [], "", 0, physics), "no sentence"
    )


effects = st.lists(st.tuples(st.sampled_from("an"), st.integers(0, 5)), max_size=8)


@given(st.sets(st.integers(0, 11)), effects)
def test_an_action_on_bits_is_textworlds_action_on_a_set(bits: set[int], changes: list[tuple[str, int]]) -> None:
    facts = table(6)
    before = {facts.fact(number) for number in bits}
    kept, added = facts.masks(f"{sign}{number}" for sign, number in changes)
    after = set(before)
    for sign, number in changes:
        true, false = ("p", f"t{number}"), ("not_p", f"t{number}")
        gained, lost = (true, false) if sign == "a" else (false, true)
        after.discard(lost)
        after.add(gained)
    assert set(facts.listed(sum(1 << number for number in bits) & kept | added)) == after


def test_a_translation_survives_the_disk_and_drives_the_planner(tmp_path: Path) -> None:
    translation = translate(DOMAIN, PROBLEM)
    assert Cache(tmp_path).get(Translation, ("x",), lambda: translation) == translation
    assert Cache(tmp_path).get(Translation, ("x",), lambda: pytest.fail("built twice")) == translation
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(translation), type=Translation) == translation
    facts = FactTable(translation, "")
    assert facts.listed(facts.initial) == [("in", "t 2", "a 1"), ("in", "t 1", "b 1")]
    planner = library.borrow()
    planner.load(translation.sas)
    start = planner.state()
    spelled = [
        [translation.actions[int(schema)].action, *(translation.entities[int(thing)] for thing in things)]
        for schema, *things in map(str.split, translation.operators.split("\n"))
    ]
    operator = spelled.index(["move", "t_bar_1", "a_bar_1", "b_bar_1"])
    assert operator in planner.operators()
    kept, added = facts.masks(planner.apply_reporting(operator, translation.most_effects))
    assert facts.listed(facts.initial & kept | added) == [
        ("in", "t 2", "b 1"),
        ("in", "t 1", "b 1"),
        ("not_in", "t 2", "a 1"),
    ]
    assert operator not in planner.operators()
    assert not planner.won()
    planner.apply(spelled.index(["wash", "t_bar_2"]))
    assert planner.won()
    planner.go(start)
    assert not planner.won()
    assert operator in planner.operators()
    library.give_back(planner)


def test_two_planners_do_not_share_a_state() -> None:
    sas = translate(DOMAIN, PROBLEM).sas
    planners = [library.Planner(), library.Planner()]
    for planner in planners:
        planner.load(sas)
    before = planners[1].operators()
    planners[0].apply(planners[0].operators()[-1])
    assert planners[1].operators() == before != planners[0].operators()
    for planner in planners:
        library.give_back(planner)


def test_a_copy_of_the_library_holds_only_what_is_loaded() -> None:
    path = library._library_path()
    assert len(library._loadable_part(path)) < path.stat().st_size / 4


def test_one_grammar_serves_every_sentence(tmp_path: Path) -> None:
    source = (wheel() / "data" / "alfred.twl2").read_text()
    first, second = (source.replace("UNKNOWN GOAL.", sentence) for sentence in ("put a mug in desk.", "look at {o}."))
    assert split_sentence(first)[1] == "put a mug in desk."
    assert split_sentence(second) == (second, "")
    text, sentence = split_sentence(first)
    grammar = load_grammar(text, Cache(tmp_path))
    assert grammar.rules["task"][0].body == (Text(f"Your task is to: {SENTENCE}"),)
    assert load_grammar(text, Cache(tmp_path)) == grammar
    facts = FactTable(translate(DOMAIN, PROBLEM), sentence)
    render = Renderer(grammar, Hierarchy((("object", ()),))).rules("task", ())
    assert render(facts, facts.initial, ()) == "Your task is to: put a mug in desk."


def grammar_of(rule: str, expression: str) -> Grammar:
    return msgspec.convert(
        {
            "rules": {
                "x": [
                    {
                        "body": [
                            {
                                "type": "Each",
                                "body": {
                                    "type": rule,
                                    **({"name": expression} if rule == "Rules" else {"expression": expression}),
                                },
                            }
                        ]
                    }
                ]
            },
            "actions": {},
        },
        Grammar,
    )


@pytest.mark.parametrize("expression", ["o.name.upper()", "__import__('os')", "o.secret", "len(o.name)", "1 + 1"])
def test_expressions_beyond_names_and_strings_are_refused(expression: str) -> None:
    renderer = Renderer(grammar_of("Value", expression), Hierarchy(()))
    facts = table(2)
    with refusal(4):
        renderer.rules("x", (("o", "t"),))(facts, 0, (1,))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("o.indefinite + ' ' + o.name", "a t1"),
        ("o.name or o.id", "t1"),
        ("o", "t1"),
        ("'' or o.type", "t"),
        ("o.name and 'x'", "x"),
    ],
)
def test_expressions_say_what_python_would(expression: str, expected: str) -> None:
    renderer = Renderer(grammar_of("Value", expression), Hierarchy(()))
    assert renderer.rules("x", (("o", "t"),))(table(2), 0, (1,)) == expected


def test_rules_that_are_missing_or_never_apply_are_named() -> None:
    with refusal(4, "nowhere"):
        Renderer(grammar_of("Rules", "nowhere"), Hierarchy(())).rules("x", ())(table(1), 0, ())
