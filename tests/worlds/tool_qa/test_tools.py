"""The eight tools: what they answer, what they refuse, and that hostile text costs nothing."""

import time
from importlib import metadata

import pytest
from agentcli.worlds.tool_qa.knowledge import FACTORS, PLACES, WRITERS, corpus, knowledge
from agentcli.worlds.tool_qa.tools.algebra import Algebra
from agentcli.worlds.tool_qa.tools.calculator import Calculator
from agentcli.worlds.tool_qa.tools.lookup import Facts, Papers, WebSearch, Wikipedia
from agentcli.worlds.tool_qa.tools.registry import (
    ERROR,
    LONGEST_ANSWER,
    TOOLS,
    AgentTool,
    ToolError,
    answer,
    tool_class,
    tool_names,
)
from agentcli.worlds.tool_qa.tools.units import Units
from hypothesis import given, settings
from hypothesis import strategies as st
from refusal import refused

SECONDS = 5.0
"""Hostile text is dealt with in less, imports included."""


class Shouting:
    """A tool as an installed package would bring it."""

    name = "shout"
    description = "says it louder"
    cost = 0.5

    def run(self, argument: str) -> str:
        return argument.upper()


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("47 * 83 * 91 * 36", "12779676"),
        ("47×83 − 1", "3900"),
        ("2 ^ 10 + 1", "1025"),
        ("7 / 2", "3.5"),
        ("1 / 3 * 3", "1"),
        ("0.1 + 0.2", "0.3"),
        ("-(3 - 5)", "2"),
        ("17 // 5 + 17 % 5", "5"),
        ("sqrt(2) ^ 2", "2"),
        ("comb(5, 2) + gcd(12, 18) + lcm(4, 6) + factorial(4)", "52"),
        ("2 * pi", "6.283185307"),
        ("4 ^ (1 / 2)", "2"),
    ],
)
def test_the_calculator_computes(formula: str, value: str) -> None:
    assert Calculator().run(formula) == value


@pytest.mark.parametrize(
    "formula",
    [
        "9^9^9^9",
        "10^1000 * 10^1000",
        "factorial(10^9)",
        "(" * 290 + "1" + ")" * 290,
        "-" * 310 + "1",
        "1" * 5000,
        "__import__('os').system('id')",
        "().__class__",
        "[1][0]",
        "'a' * 10^9",
        "lambda: 1",
        "sqrt(x=4)",
        "True + 1",
        "1e308 * 10",
        "2 ^ 2000 / 3",
        "1e999",
        "-1e999",
        "(-8) ^ 0.5",
        "1 / 0",
        "log(0)",
        "2 +",
        "round(1.5, 2)",
        "nothing(1)",
    ],
)
def test_the_calculator_refuses_at_once(formula: str) -> None:
    begun = time.monotonic()
    with pytest.raises(ToolError):
        Calculator().run(formula)
    assert time.monotonic() - begun < 1


@given(st.integers(-999, 999), st.integers(-999, 999), st.integers(1, 99))
@settings(max_examples=50, deadline=None)
def test_the_calculator_agrees_with_python(first: int, second: int, third: int) -> None:
    assert Calculator().run(f"{first} * ({second} - {third}) // {third}") == str(first * (second - third) // third)


@pytest.mark.parametrize(
    ("formula", "result"),
    [
        ("solve(x / 17 - 23 = 61)", "x = 1428"),
        ("x^2 - 5*x + 6 = 0", "x = 2, x = 3"),
        ("diff(47 * x ^ 3 + 12 * x ^ 2, 13)", "24141"),
        ("diff(x ^ 2)", "2*x"),
        ("integrate(3 * x ^ 2 + 1, 0, 2)", "10"),
        ("integrate(2 * y)", "y^2"),
        ("factor(x^2 - 1)", "(x - 1)*(x + 1)"),
        ("factor(360)", "2^3 * 3^2 * 5^1"),
        ("expand((x + 1)^2)", "x^2 + 2*x + 1"),
        ("sin(x)^2 + cos(x)^2", "1"),
        ("47 * 83", "3901"),
        ("solve(2 * x = 5)", "x = 2.5"),
        ("solve(x^5 - x + 1 = 0)", "x = -1.167303978"),
        ("solve(x^3 - 3*x + 1 = 0)", "x = -1.879385242, x = 0.3472963553, x = 1.532088886"),
        ("solve(sqrt(2) * x = 2)", "x = 1.414213562"),
        ("diff(x ^ 2, x)", "2*x"),
        ("diff(x ^ 2, 1 / 2)", "1"),
        ("solve(+x = +3)", "x = 3"),
    ],
)
def test_algebra_solves(formula: str, result: str) -> None:
    assert Algebra().run(formula) == result


@pytest.mark.parametrize(
    "formula",
    [
        "__import__('os').system('id')",
        "x.__class__",
        "solve(x + y = 1)",
        "solve(x^2 + 1 = 0)",
        "x ^ 999",
        "2 ^ x ^ 999",
        "exec(x)",
        "expand((x + y + z + a + b + c) ^ 20)",
        "integrate(x, 1)",
        "solve()",
        "'x'",
        "x < 1",
        "1 / 0",
        "0 / 0",
        "x / 0",
        "log(0)",
        "tan(pi / 2)",
        "exp(20 ^ 20)",
        "1e999",
        "integrate(1 / x, 0, 1)",
        "integrate(log(sin(x)), 0, 1)",
        "((((x + 1) ^ 20) ^ 20) ^ 20) ^ 20 - factor(9)",
        "exp(exp(exp(20)))",
        "expand((x + 1) ^ 20 ^ 20)",
        "factor(((x + 1) ^ 20) ^ 9 - 1)",
    ],
)
def test_algebra_refuses_in_time(formula: str) -> None:
    begun = time.process_time()
    with pytest.raises(ToolError):
        Algebra().run(formula)
    assert time.process_time() - begun < SECONDS


@pytest.mark.parametrize(
    ("query", "result"),
    [
        ("47 mile to kilometre", "75.639168 kilometre"),
        ("12 mile / hour to metre / second", "5.36448 metre / second"),
        ("2 * 3 week in day", "42 day"),
        ("30 degC to degF", "86 degF"),
        ("2 m^2 to cm^2", "20000 cm^2"),
    ],
)
def test_units_converts(query: str, result: str) -> None:
    assert Units().run(query) == result


@pytest.mark.parametrize(
    "query",
    [
        "5 kg to m",
        "9**9**9 m to km",
        "3 m^99 to m",
        "5 __class__ to m",
        "3 'x' to m",
        "m to km",
        "3 m",
        "1 m**9**9 to m",
        "2^2000 m to km",
        "10^400 degC to degF",
        "5000 dBm to W",
        "1" + " " * 800 + "m" + " " * 800 + "x",
        "1 " + "m " * 800 + "x",
    ],
)
def test_units_refuses_at_once(query: str) -> None:
    Units().run("1 m to km")
    begun = time.monotonic()
    with pytest.raises(ToolError):
        Units().run(query)
    assert time.monotonic() - begun < 1


def test_the_factors_of_the_questions_are_those_of_the_library() -> None:
    for (unit, other), factor in FACTORS.items():
        assert Units().run(f"1 {unit} to {other}").split()[0] == f"{float(factor):.10g}"


def test_every_fact_is_found_where_it_lies_and_nowhere_else() -> None:
    sources: dict[str, AgentTool] = {
        "facts": Facts(),
        "wikipedia": Wikipedia(),
        "search": WebSearch(),
        "papers": Papers(),
    }
    assert set(sources) == set(PLACES)
    for fact in knowledge().facts.values():
        statement = f"{fact.name} is {fact.value}"
        if fact.kind == "unit":
            statement = f"There are {fact.value} {fact.name}"
        for name, source in sources.items():
            text = answer(source, fact.name).replace(" = ", " is ")
            if fact.kind == "unit":
                text = text.replace(f"{fact.name} is {fact.value}", statement)
            assert (statement in text) == (name in fact.places), (name, fact, text)


def test_names_in_the_corpora_are_one_thing_each() -> None:
    known = knowledge()
    names = [name for group in (*known.subjects.values(), *known.words.values()) for name in group]
    assert len(set(names)) == len(names)
    assert [len(corpus(name)) > 100 for name in WRITERS] == [True] * 3
    assert all(fact.places for fact in known.facts.values())


@pytest.mark.parametrize("query", ["", "the", "xyzzy", "!?", "\x00", "a" * 10_000])
def test_a_search_without_a_known_word_finds_nothing(query: str) -> None:
    for source in (Facts(), Wikipedia(), WebSearch(), Papers()):
        with pytest.raises(ToolError):
            source.run(query)


@given(st.text(max_size=200))
@settings(max_examples=25, deadline=None)
def test_no_text_makes_a_tool_raise_or_talk_without_end(text: str) -> None:
    for tool in (Calculator(), Algebra(), Units(), Facts(), WebSearch()):
        reply = answer(tool, text)
        assert 0 < len(reply) <= LONGEST_ANSWER
        assert reply == answer(tool, text)


def test_a_failure_is_a_text_and_a_long_answer_is_cut() -> None:
    assert answer(Calculator(), "1 / 0").startswith(ERROR)
    assert answer(Calculator(), "2 +\n1 +").startswith(ERROR)
    assert len(answer(Shouting(), "a" * 5000)) == LONGEST_ANSWER
    assert answer(Shouting(), " ").startswith(ERROR)


def test_each_tool_says_its_name() -> None:
    assert tool_names() == list(TOOLS)
    for name in TOOLS:
        assert tool_class(name).name == name
        assert f"{name}[" in tool_class(name).description or name in ("units", "algebra")


def test_an_installed_tool_joins_the_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [metadata.EntryPoint(name, f"{__name__}:Shouting", "agentcli.tools") for name in ("shout", "whisper")]
    monkeypatch.setattr(metadata, "entry_points", lambda **wanted: metadata.EntryPoints(points).select(**wanted))
    assert tool_names() == [*TOOLS, "shout", "whisper"]
    assert tool_class("shout") is Shouting
    refused(lambda: tool_class("whisper"), names=("whisper", "shout"))
    refused(lambda: tool_class("calculater"), remedy="calculator")
