"""The trees of a page say what the files say: texts, outcomes, advantages, accounts, states."""

import json
from pathlib import Path

import pytest
from agentcli.analysis.page.texts import TextTable, kept_part, no_ends, token_ends_of, units, visible
from agentcli.analysis.page.trees import START, PageTree, page_tree
from agentcli.credit.registry import METHODS
from agentcli.records.files import read_records
from agentcli.records.types import Credit, Step, Tree
from command_line import agentcli
from credit_trees import ERRORED, FAILURE, SUCCESS, TRUNCATED, step, tree
from hypothesis import given
from hypothesis import strategies as st
from pages import prompts_of, rows_of, viewed

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m\u202ereversed\u2066\u200b\x00\ud800 \U0001f600"


@pytest.fixture
def credited(run: Path) -> Path:
    """Eight trees of spark with the credit of two methods."""
    for method in ("grpo", "rewardflow"):
        assert agentcli("assign-credit", str(run), "--method", method, "-q").code == 0
    return run


def test_the_page_holds_what_the_files_hold(credited: Path, tmp_path: Path) -> None:
    index, pages = viewed(tmp_path / "page.html", str(credited))
    trees = list(read_records(credited / "trees.jsonl", Tree))
    rows = rows_of(index)
    assert [row["line"] for row in rows] == list(range(1, len(trees) + 1))
    assert [row["task"] for row in rows] == [held.task.id for held in trees]
    for row, page, held in zip(rows, pages, trees, strict=True):
        outcomes = [one.outcome for one in held.steps if one.outcome]
        assert row["outcomes"] == "".join(outcome[0] for outcome in outcomes)
        assert row["steps"] == held.ledger.steps
        assert prompts_of(page) == [visible(one.prompt) for one in held.steps]
        for cells, one in zip(page["steps"], held.steps, strict=True):
            assert page["texts"][cells["response"]] == visible(one.response)
            assert page["texts"][cells["next_observation"]] == visible(one.next_observation)
            assert page["texts"][cells["action"]] == (one.action or "")
            assert cells.get("outcome") == one.outcome


def test_advantages_are_those_of_the_credit_files(credited: Path, tmp_path: Path) -> None:
    _, pages = viewed(tmp_path / "page.html", str(credited))
    for place, method in enumerate(("grpo", "rewardflow")):
        credits = read_records(credited / f"credit/{method}.jsonl", Credit)
        for page, credit in zip(pages, credits, strict=True):
            column = page["credit"][place]
            assert column["method"] == method
            rows = [(int(step), row["advantage"]) for step, held in column["rows"].items() for row in held]
            assert sorted(rows) == sorted((row.step, row.advantage) for row in credit.steps)


def test_methods_agree_in_the_page_as_credit_compare_says(credited: Path, tmp_path: Path) -> None:
    index, _ = viewed(tmp_path / "page.html", str(credited))
    compared = json.loads(agentcli("credit", "compare", str(credited), "--json").stdout)
    agreement = index["sources"][0]["agreement"]
    assert agreement["agreement"] == compared["agreement"]
    assert agreement["disagreements"] == compared["disagreements"]


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"ppo", "grpo-prm", "rare-tool"}))
def test_every_account_comes_to_its_advantage(run: Path, tmp_path: Path, method: str) -> None:
    _, pages = viewed(tmp_path / "page.html", str(run), "--credit", method)
    accounts = 0
    for page in pages:
        (column,) = page["credit"]
        for rows in column["rows"].values():
            for row in rows:
                if row["advantage"] is None:
                    assert page["texts"][row["masked"]]
                    continue
                place, value = row["account"][-1]
                assert column["lines"][place][0] == "advantage"
                assert value == pytest.approx(row["advantage"], abs=1e-9)
                accounts += 1
    assert accounts


def test_without_accounts_the_parts_are_there(credited: Path, tmp_path: Path) -> None:
    _, pages = viewed(tmp_path / "page.html", str(credited), "--no-accounts")
    rows = [row for page in pages for held in page["credit"][1]["rows"].values() for row in held]
    assert not any("account" in row for row in rows)
    assert any(dict(row["parts"]).keys() >= {"gain", "value"} for row in rows if "parts" in row)


def test_one_run_is_one_page_byte_for_byte(credited: Path, tmp_path: Path) -> None:
    viewed(tmp_path / "one.html", str(credited))
    viewed(tmp_path / "two.html", str(credited))
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_every_state_and_every_step_stands_in_the_graph(run: Path, tmp_path: Path) -> None:
    _, pages = viewed(tmp_path / "page.html", str(run))
    for page in pages:
        graph = page["graph"]
        places = [tuple(state[:2]) for state in graph["states"]]
        assert len(set(places)) == len(places)
        assert len(graph["sources"]) == len(page["steps"])
        for source, target, *_ in graph["edges"]:
            # An edge leads at most one column further from the start.
            assert places[target][0] <= places[source][0] + 1


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_prompt_is_put_together_again(one: str, other: str) -> None:
    start, end = kept_part(one, other)
    assert other[:start] == one[:start]
    assert start + end <= min(len(one), len(other))
    assert one[len(one) - end :] == other[len(other) - end :]


@given(st.text(max_size=60))
def test_what_is_shown_is_visible(text: str) -> None:
    shown = visible(text)
    assert shown.replace("\n", "").isprintable()
    assert visible(shown) == shown
    assert units(shown) == len(shown.encode("utf-16-le")) // 2


def of(*steps: Step) -> PageTree:
    """The cells of a tree by hand."""
    texts = TextTable()
    return page_tree(tree(*steps), texts, [], None, no_ends, lambda names: [])


def test_hostile_texts_are_harmless_and_whole() -> None:
    page = of(step(0, None, prompt=HOSTILE, response=HOSTILE, next_observation=HOSTILE, outcome=FAILURE))
    text = page.texts[page.steps[0].response]
    assert text == visible(HOSTILE)
    assert "</script><img" in text
    assert "\\u202e" in text
    assert "\x1b" not in text


def test_a_step_that_leads_back_says_where() -> None:
    steps = [
        step(0, None, state="a", next_state="b"),
        step(1, 0, state="b", next_state="c"),
        step(2, 1, state="c", next_state="b"),
        step(3, 2, state="b", next_state="a", outcome=TRUNCATED),
    ]
    page = of(*steps)
    assert [cells.back for cells in page.steps] == [-1, -1, 0, START]


def test_no_step_is_known_to_lead_back_where_states_are_not_known() -> None:
    page = of(step(0, None, state="", next_state=""), step(1, 0, state="", next_state="", outcome=TRUNCATED))
    assert [cells.back for cells in page.steps] == [-1, -1]


def test_a_prompt_that_continues_a_conversation_says_so() -> None:
    page = of(step(0, None, prompt="begin"), step(1, 0, prompt="go on", continues="exact", outcome=SUCCESS))
    assert [cells.continues for cells in page.steps] == [False, True]


def test_leaves_and_successes_are_counted_below_every_step() -> None:
    page = of(step(0, None), step(1, 0, outcome=SUCCESS), step(2, 0, outcome=ERRORED))
    assert [(cells.leaves, cells.success) for cells in page.steps] == [(2, 1), (1, 1), (1, 0)]


def test_tokens_lie_where_the_tokenizer_says_or_nowhere(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"go": 0, "\U0001f600": 1, "east": 2, "[UNK]": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    (tmp_path / "runs/model").mkdir(parents=True)
    tokenizer.save(str(tmp_path / "runs/model/tokenizer.json"))
    ends = token_ends_of("runs/model", tmp_path / "runs/x")
    said = {"response": "go \U0001f600 east", "logprobs": [-0.5] * 4}
    # The emoji is two units of UTF-16; the fourth token is the end of turn.
    assert ends(step(0, None, **said, token_ids=[0, 1, 2, 9])) == [2, 5, 10]
    assert ends(step(0, None, **said, token_ids=[0, 2, 2, 9])) == []
    assert token_ends_of("nowhere", tmp_path)(step(0, None, **said, token_ids=[0, 1, 2, 9])) == []
