"""The page in Chromium and Firefox, headless, from disk: it shows what the files hold, and nothing in it runs or is fetched."""

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from agentcli.records.files import RecordWriter, read_records
from agentcli.records.trees import leaves, path
from agentcli.records.types import Credit, Outcome, Task, Tree
from agentcli.reports.page import document
from browsers import Browser
from command_line import agentcli, succeeded
from credit_trees import move, step, tree
from grown_runs import grown
from pages import rows_of, unpacked

pytestmark = pytest.mark.slow
__all__ = ["grown"]
HOSTILE = (
    "<script>alert(1)</script><img src=https://example.org/x onerror=alert(2)>",
    "javascript:alert(3)//[x](javascript:alert(4))",
    "</script><script>alert(5)</script><!--",
    "\x1b[31mred\u202ereversed\u2066\u200b\x00",
    "__proto__",
    "constructor",
    "&lt;b&gt; ${alert(6)} {{alert(7)}} `",
    "x" * 100_000,
)
FAULTS = ("blocker", "serious", "critical")


@pytest.fixture(scope="module", params=["chrome", "firefox"])
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    driven = Browser(request.param)
    yield driven
    driven.close()


@pytest.fixture(scope="module")
def run(grown: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight trees with the credit of two methods, in the folder x."""
    folder = tmp_path_factory.mktemp("viewed") / "x"
    folder.mkdir()
    (folder / "trees.jsonl").write_bytes(grown.read_bytes())
    for method in ("grpo", "rewardflow"):
        assert agentcli("assign-credit", str(folder), "--method", method, "-q").code == 0
    return folder


@pytest.fixture(scope="module")
def page(run: Path) -> Path:
    return view(run, run.parent / "page.html")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of trees whose every text is hostile, one of them in several copies, and one that broke."""
    folder = tmp_path_factory.mktemp("hostile") / "x"
    with RecordWriter(folder / "trees.jsonl") as writer:
        for number, text in enumerate(HOSTILE):
            fields = dict.fromkeys(("prompt", "response", "observation", "next_observation", "action", "tag"), text)
            first = step(0, None, **fields, admissible=[text], notes={text[:100]: text, "judge": 1.5})
            moved = step(
                1, 0, **{**fields, "action": None}, moves=[move(1, text, next_observation=text), move(2, text)]
            )
            moved.outcome = Outcome.SUCCESS
            broken = step(2, 0, **fields, error=text, outcome=Outcome.ERRORED)
            one = tree(first, moved, broken)
            one.task = Task(id=f"{number}{text}", world="w", split="s", kind=text[:200])
            one.instruction = text
            writer.write(one)
    return view(folder, folder.parent / "hostile.html")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with pictures, in the folder x."""
    folder = tmp_path_factory.mktemp("drawn") / "x"
    sokoban = ("--env", "sokoban", "--set", "environment.options.pictures=true", "--policy", "expert")
    assert agentcli("rollout", *sokoban, "--tasks", "2", "--leaves", "2", "-o", str(folder), "-q").code == 0
    return folder


def view(run: Path, page: Path, *words: str) -> Path:
    succeeded("view", str(run), "-o", str(page), "-q", "--overwrite", *words)
    return page


def address(**values: object) -> str:
    return urlencode(values)


def quiet(browser: Browser) -> bool:
    """Whether there was no console message, dialog, error or request but for the page's own files."""
    strange = [event for event in browser.ask("events") if not event.startswith(("request: file://", "request: data:"))]
    assert strange == []
    return True


def test_rows_show_the_numbers_of_the_file(browser: Browser, page: Path, run: Path) -> None:
    browser.open(page, address(view="trees"))
    rows = browser.run(
        "[...document.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    trees = list(read_records(run / "trees.jsonl", Tree))
    assert len(rows) == len(trees)
    for cells, held in zip(rows, trees, strict=True):
        ends = [one.outcome for one in held.steps if one.outcome]
        assert cells[3].strip() == f"{ends.count(Outcome.SUCCESS)}/{len(ends)}"
        assert cells[4] == str(held.ledger.steps)
        assert cells[5] == (str(held.ledger.forks) if held.ledger.forks else "")
    assert quiet(browser)


def test_a_step_shows_its_texts_and_its_advantage(browser: Browser, page: Path, run: Path) -> None:
    held = next(iter(read_records(run / "trees.jsonl", Tree)))
    credit = next(iter(read_records(run / "credit/grpo.jsonl", Credit)))
    for chosen in (held.steps[0], held.steps[-1]):
        browser.open(page, address(view="tree", run="x", line=1, step=chosen.id, credit="grpo,rewardflow"))
        turn = browser.text(f"[data-turn='{chosen.id}']")
        assert chosen.response in turn
        assert chosen.next_observation in turn
        (row,) = [row for row in credit.steps if row.step == chosen.id]
        shown = browser.text(".account b").replace("−", "-")
        assert float(shown) == pytest.approx(row.advantage, abs=0.006)
        assert browser.run("document.querySelectorAll('.account').length") == 2
        assert browser.text(".equation")
    assert quiet(browser)


def test_the_prompt_is_whole(browser: Browser, page: Path, run: Path) -> None:
    held = next(iter(read_records(run / "trees.jsonl", Tree)))
    deepest = held.steps[-1]
    browser.open(page, address(view="tree", run="x", line=1, step=deepest.id))
    fold = f"[data-turn='{deepest.id}'] details"
    browser.run(f'document.querySelector("{fold}").open = true')
    browser.ask("wait", f"{fold} pre")
    assert browser.text(f"{fold} pre") == deepest.prompt


def test_two_trajectories_stand_side_by_side_and_show_where_they_part(browser: Browser, page: Path, run: Path) -> None:
    held = next(iter(read_records(run / "trees.jsonl", Tree)))
    first, other, *_ = leaves(held)
    acts, others = ([step.action for step in path(held, leaf)] for leaf in (first, other))
    parting = next(place for place, (one, two) in enumerate(zip(acts, others, strict=False)) if one != two)
    asked = {"view": "tree", "run": "x", "line": 1, "leaf": first.id}
    browser.open(page, address(**asked, beside=f"x:1:{other.id}"))
    widths = browser.run("[...document.querySelectorAll('.split > section')].map((pane) => pane.clientWidth)")
    assert abs(widths[0] - widths[1]) <= 1
    marked = "[...document.querySelectorAll('.parting')].map((mark) => mark.nextElementSibling.dataset.turn)"
    assert browser.run(marked) == [str(path(held, leaf)[parting].id) for leaf in (first, other)]
    total = len(leaves(held))
    assert f"trajectory 1 of {total}, {len(acts)} steps" in browser.text(".split h2")
    assert f"trajectory 2 of {total}, {len(others)} steps" in browser.text(
        ".split > section:last-child option[selected]"
    )
    browser.go(address(**asked))
    assert browser.run("document.querySelectorAll('.parting').length") == 0


def test_keys_walk_through_the_tree_and_between_trees(browser: Browser, page: Path) -> None:
    browser.open(page, address(view="tree", run="x", line=1, step=0))

    def press(key: str) -> dict[str, list[str]]:
        browser.ask("press", key)
        browser.run("new Promise((done) => setTimeout(done, 60))")
        return browser.run("Object.fromEntries(new URLSearchParams(location.hash.slice(1)))")

    assert press("ArrowRight")["step"] != "0"
    assert browser.run("document.querySelectorAll('.cell.chosen, .turn.chosen').length") == 2
    assert press("ArrowLeft")["step"] == "0"
    leaf = press("ArrowDown").get("leaf")
    assert leaf not in (None, press("ArrowUp")["leaf"])
    assert press("n")["line"] == "2"
    assert press("p")["line"] == "1"
    assert quiet(browser)


def test_a_tree_that_was_left_before_it_was_drawn_can_be_opened_again(browser: Browser, page: Path) -> None:
    browser.open(page, address(view="trees"))
    tree = address(view="tree", run="x", line=1)
    # The list is asked for while the block of the tree is unpacked.
    for view in (tree, address(view="trees")):
        browser.run(f"location.hash = {json.dumps(view)}; dispatchEvent(new HashChangeEvent('hashchange'))")
    browser.go(tree)
    assert browser.run("Boolean(document.querySelector('[aria-label=trajectory]'))")


def test_search_finds_every_tree_that_holds_a_text(browser: Browser, page: Path) -> None:
    blocks = unpacked(page)
    index = blocks["index"]
    trees = [blocks[f"block-{index['blocks'][row['block']]}"][row["place"]] for row in rows_of(index)]
    wanted = "take key"
    fields = ("action", "response", "observation", "next_observation")
    holding = [any(wanted in one["texts"][cells[field]] for cells in one["steps"] for field in fields) for one in trees]
    assert 0 < sum(holding) < len(trees)
    browser.open(page, address(view="trees", find=wanted))
    browser.run(
        "new Promise((done) => { const look = () => document.querySelector('#hits p')?.textContent.includes('hold')"
        " ? done() : setTimeout(look, 20); look(); })"
    )
    assert browser.run("document.querySelectorAll('#hits li').length") == sum(holding)


def test_every_link_of_every_view_leads_to_a_view(browser: Browser, page: Path) -> None:
    tree_view = {"view": "tree", "run": "x", "line": 1}
    views = [
        {},
        {"view": "trees"},
        {"view": "compare"},
        tree_view,
        {**tree_view, "step": 1},
        {**tree_view, "tab": "states"},
    ]
    seen: set[str] = set()
    for one in views:
        browser.open(page, address(**one))
        links = browser.run("[...document.querySelectorAll('a')].map((link) => link.getAttribute('href'))")
        assert all(link.startswith("#") for link in links)
        seen.update(links[:25])
    browser.open(page)
    for link in sorted(seen):
        browser.run(f"location.hash = {json.dumps(link)}, new Promise((done) => setTimeout(done, 40))")
        assert browser.run("document.querySelector('[role=alert]')") is None, link
        assert browser.text("main"), link
    assert quiet(browser)


@pytest.mark.parametrize(
    "odd", ["%", "view=__proto__", "view=trees&sort=__proto__&kind=constructor", "view=tree&run=__proto__&line=x",
            "view=tree&run=x&line=1&step=-1&leaf=99999&credit=toString&colour=__proto__&tab=states&state=x",
            "view=tree&run=x&line=1&beside=__proto__:1:1", "view=compare&before=__proto__&after=%00"],
)  # fmt: skip
def test_an_odd_address_breaks_nothing(browser: Browser, page: Path, odd: str) -> None:
    browser.open(page, odd)
    assert browser.run("document.querySelector('[role=alert]')") is None
    assert browser.text("main")
    assert quiet(browser)


def test_hostile_texts_are_shown_and_do_nothing(browser: Browser, hostile: Path) -> None:
    browser.open(hostile)
    browser.go("view=trees")
    rows = browser.run("document.querySelectorAll('tbody tr').length")
    assert rows == len(HOSTILE)
    for line in range(1, rows + 1):
        for more in ("", "&tab=states"):
            browser.go(f"view=tree&run=x&line={line}&step=1{more}")
            assert browser.run("document.querySelector('[role=alert]')") is None
            assert browser.run("document.querySelectorAll('main img, main script, main iframe').length") == 0
        browser.run("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    browser.go("view=tree&run=x&line=1&step=0")
    assert HOSTILE[0] in browser.text("[data-turn='0'] .policy")
    assert browser.run("Object.prototype.polluted") is None
    assert quiet(browser)


def test_no_string_becomes_markup(browser: Browser, page: Path) -> None:
    browser.open(page)
    if browser.run("typeof trustedTypes") == "undefined":
        pytest.skip("this browser has no trusted types yet; the policy's hashes hold in it too")
    attempt = "try { document.body.innerHTML = '<b>x</b>'; return ''; } catch (error) { return error.name; }"
    thrown = browser.run(f"(() => {{ {attempt} }})()")
    assert thrown == "TypeError"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_views_are_accessible(browser: Browser, page: Path, scheme: str) -> None:
    if browser.kind == "firefox":
        pytest.skip("the driver chooses colours in Chromium only")
    for one in ({}, {"view": "trees"}, {"view": "compare"}, {"view": "tree", "run": "x", "line": 1, "step": 1},
                {"view": "tree", "run": "x", "line": 1, "tab": "states"}):  # fmt: skip
        browser.open(page, address(**one), scheme=scheme)
        faults = [fault for fault in browser.ask("axe") if fault[0] in FAULTS]
        assert faults == [], one


def test_a_narrow_screen_needs_no_sideways_scrolling(browser: Browser, page: Path) -> None:
    if browser.kind == "firefox":
        pytest.skip("the driver chooses the width in Chromium only")
    for one in ({}, {"view": "trees"}, {"view": "compare"}, {"view": "tree", "run": "x", "line": 1, "step": 1}):
        browser.open(page, address(**one), width=420)
        assert browser.run("document.documentElement.scrollWidth") <= 420, one


def test_data_beside_the_page_is_read_when_it_is_asked_for(
    browser: Browser, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "LARGEST_FILE", 10)
    large = view(run, tmp_path / "large.html")
    browser.open(large)
    before = [event for event in browser.ask("events") if "large-data" in event]
    assert before == []
    browser.go(address(view="tree", run="x", line=1, step=0))
    assert browser.text("[data-turn='0']")
    assert quiet(browser)
    for file in document.data_folder(large).iterdir():
        file.unlink()
    browser.open(large)
    browser.go(address(view="tree", run="x", line=1, step=0))
    assert "large-data" in browser.text("[role=alert]")


PICTURES = "[...document.querySelectorAll('.pictures img')]"
LOADED = f"Promise.all({PICTURES}.map((picture) => picture.decode())).then(() => 1)"


@pytest.mark.parametrize("largest", [document.LARGEST_FILE, 10])
def test_pictures_are_shown_where_the_world_showed_them(
    browser: Browser, drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr(document, "LARGEST_FILE", largest)
    page = view(drawn, tmp_path / "drawn.html")
    held = next(iter(read_records(drawn / "trees.jsonl", Tree)))
    trajectory = [one for one in held.steps if one.id < len(held.steps) // 2]
    browser.open(page, address(view="tree", run="x", line=1, step=0))
    browser.run("new Promise((done) => setTimeout(done, 300))")
    browser.run(LOADED)
    shown = browser.run(f"{PICTURES}.map((one) => [one.src, one.alt, one.naturalWidth])")
    files = [trajectory[0].pictures, *(one.next_pictures for one in trajectory)]
    pngs = [(drawn / "pictures" / f"{name}.png").read_bytes() for (name,) in files]
    assert [src for src, _, _ in shown] == [f"data:image/png;base64,{b64encode(png).decode()}" for png in pngs]
    assert [width for _, _, width in shown] == [48] * len(pngs)
    assert all(alt for _, alt, _ in shown)
    assert quiet(browser)
    if browser.kind == "chrome":
        assert [fault for fault in browser.ask("axe") if fault[0] in FAULTS] == []
