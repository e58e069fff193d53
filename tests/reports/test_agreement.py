"""Tables of agreement hold the numbers they were given, many methods included."""

import io

import msgspec
import pytest
from agentcli.credit.compare import CreditComparison
from agentcli.reports.comparison import agreement_tables
from agentcli.reports.tables import credit_table
from rich.console import Console
from table_text import text_of


def comparison(names: list[str], kinds: list[str], disagreements: int = 1, steps: int = 1234) -> CreditComparison:
    pair = {
        "methods": names[:2],
        "steps": 40,
        "pearson": 0.5,
        "spearman": None,
        "share_opposite": 0.25,
        "share_zero_in_one": 0.0,
    }
    apart = {
        "task": "[red]t\x1b",
        "kind": "k",
        "line": 3,
        "step": 7,
        "distance": 2.5,
        "advantages": dict.fromkeys(names, -0.25) | {names[0]: None},
        "action": "go :warning: east",
    }
    method = {"steps": 1234, "share_masked": 0.5, "share_zero": None, "mean": 0.125, "spread": 1.5, "file": None}
    values = {
        "steps": steps,
        "kept": 1234,
        "methods": [{**method, "method": name, "settings": {"gamma": 0.5} if name == "a" else {}} for name in names],
        "agreement": [{**pair, "kind": kind} for kind in [*kinds, None]],
        "disagreements": [apart] * disagreements,
    }
    return msgspec.convert(values, CreditComparison)


def test_methods_agreement_and_disagreements() -> None:
    methods, agreement, apart = agreement_tables(comparison(["a", "b"], ["cool", "heat"]))
    assert methods.title == "credit of 1,234 steps"
    assert text_of(methods)[1:] == [
        ["a", "computed now", "gamma 0.5", "1,234", "50.0", "-", "0.125", "1.5"],
        ["b", "computed now", "defaults", "1,234", "50.0", "-", "0.125", "1.5"],
    ]
    rows = text_of(agreement)
    assert [row[1] for row in rows] == ["kind", "cool", "heat", "all"]
    assert rows[1] == ["a ~ b", "cool", "40", "+0.500", "-", "25.0", "0.0"]
    assert text_of(apart)[1] == ["[red]t\\x1b", "go :warning: east", "-", "-0.25", "2.5", "3:7"]


def test_one_kind_is_not_told_twice_and_nothing_apart_is_no_table() -> None:
    _, agreement = agreement_tables(comparison(["a", "b"], ["cool"], disagreements=0))
    assert [row[1] for row in text_of(agreement)] == ["kind", "all"]


def test_a_sample_is_said_to_be_one() -> None:
    methods, *_ = agreement_tables(comparison(["a", "b"], [], steps=5_000_000))
    assert all(part in methods.title for part in ("5,000,000 steps", "sample of 1,234"))


def test_twelve_methods_fit() -> None:
    names = [f"method{n}" for n in range(12)]
    out = io.StringIO()
    console = Console(file=out, width=140, emoji=False)
    for table in agreement_tables(comparison(names, [])):
        console.print(table)
    text = out.getvalue()
    assert "method11 -0.25" in text
    assert len(text.splitlines()) < 40


def test_statistics_of_a_credit_file() -> None:
    statistics = {
        "trees": 12,
        "rows": 4321,
        "mean": 0.0,
        "spread": 0.5,
        "drift": None,
        "share_zero": 0.125,
        "share_masked": 0.0,
        "groups_without_success": 3,
        "groups_all_equal": 4,
        "nonzero": {"action": 0.325, "trajectory": 1.0},
        "graphs": {"nodes": 28.75, "edges": 55.875, "most_nodes": 42, "most_edges": 77},
    }
    rows = dict(text_of(credit_table("grpo", statistics))[1:])
    assert rows == {
        "trees": "12",
        "without a success": "3 (25.0 %)",
        "with equal outcomes": "4 (33.3 %)",
        "rows": "4,321",
        "masked %": "0.0",
        "zero advantage %": "12.5",
        "mean advantage": "0",
        "spread (std)": "0.5",
        "drift (|mean| / std)": "-",
        "action not zero %": "32.5",
        "trajectory not zero %": "100.0",
        "graph nodes: mean, most": "28.8, 42",
        "graph edges: mean, most": "55.9, 77",
    }


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_cuts_no_number(width: int) -> None:
    out = io.StringIO()
    for table in agreement_tables(comparison(["grpo", "rewardflow"], ["cool", "heat"])):
        Console(file=out, width=width, emoji=False).print(table)
    text = out.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for part in ("computed", "1,234", "0.125", "+0.500", "25.0", "-0.25", "2.5", "3:7"):
        assert part in text, part


def test_float_noise_is_no_mean() -> None:
    rows = comparison(["a", "b"], [])
    rows.methods[0].mean = -2.2e-18
    methods, *_ = agreement_tables(rows)
    assert text_of(methods)[1][-2:] == ["0", "1.5"]
