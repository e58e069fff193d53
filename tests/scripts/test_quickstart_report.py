"""The tables of the quickstart's report hold the numbers they were given."""

from agentcli.records.types import Ledger
from quickstart_report import ledgers_table, success_table
from table_text import results, summary, text_of


def test_success_shows_gains_in_points_and_p_only_over_all() -> None:
    before = summary(0.5, {"clean": results(0.25), "gone": results(0.5)})
    after = summary(0.75, {"clean": results(0.2)})
    rows = text_of(success_table("greedy", before, after, 0.00123))
    assert rows[0] == ["kind", "greedy: before", "after", "gain", "McNemar p"]
    assert rows[1] == ["clean", "25.0 (15.0-35.0)", "20.0 (10.0-30.0)", "-5.0", ""]
    assert rows[2] == ["gone", "50.0 (40.0-60.0)", "-", "-", ""]
    assert rows[3] == ["all", "50.0 (40.0-60.0)", "75.0 (65.0-85.0)", "+25.0", "0.0012"]


def test_ledgers_side_by_side_with_shares() -> None:
    ledgers = {"chain": Ledger(steps=2000), "spark": Ledger(steps=1500, forks=12)}
    rows = text_of(ledgers_table(ledgers))
    assert rows[0] == ["count", "chain", "spark", "spark / chain"]
    assert ["steps", "2,000", "1,500", "0.75"] in rows
    assert ["forks", "0", "12", "-"] in rows
