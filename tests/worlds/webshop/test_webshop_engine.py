"""The shop's engine: pages as the papers print them, WebShop's rules of clicking, exact states, an expert that buys."""

import random
from functools import partial

import pytest
from agentcli.environments.protocol import Forkable, Solvable, Tutor
from agentcli.environments.registry import make_world
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.webshop.engine import WebshopEngine, item_page, results_page, text_of
from agentcli.worlds.webshop.products import RawOption, RawProduct, product_of
from agentcli.worlds.webshop.world import WebshopWorld
from refusal import refusal, refused


def world(**options: object) -> WebshopWorld:
    return WebshopWorld(EnvironmentSettings(name="webshop", options=options))


@pytest.fixture(scope="module")
def shop() -> WebshopWorld:
    return world(products=100)


def at_item(shop: WebshopWorld) -> WebshopEngine:
    """An engine on the page of the wanted product, with nothing chosen."""
    engine = shop.engine()
    engine.start(shop.tasks("test")[0])
    for action in engine.plan()[:-3]:
        engine.step(action)
    return engine


def test_it_is_made_by_its_name_and_has_every_capability() -> None:
    made = make_world(EnvironmentSettings(name="webshop"))
    engine = made.engine()
    assert isinstance(made, Tutor)
    assert isinstance(engine, Forkable)
    assert isinstance(engine, Solvable)
    assert (len(made.tasks("test")), made.card.evaluation_split) == (500, "test")
    assert len(made.tasks("train")) > 5000


def test_pages_have_the_form_of_002_figure_16() -> None:
    """Nodes 1 and 8, cut short; the paper's print lacks the sign before Prev."""
    raw = RawProduct(
        asin="B07HP6LVRS",
        name="MCICI Mens Loafers Moccasin Driving Shoes",
        category="fashion",
        query="loafers",
        product_category="A › B",
        pricing="$15.99$32.99",
        customization_options={
            "Size": [RawOption("6.5"), RawOption("7")],
            "Color": [RawOption(" Black/B "), RawOption("blue")],
            "Style": None,
        },
    )
    product = product_of(raw, None, (), "here")
    assert results_page([product], 1, 50) == (
        "'Back to Search' [SEP] 'Page 1 (Total results: 50)' [SEP] 'Next >' [SEP] 'B07HP6LVRS' [SEP] "
        "'MCICI Mens Loafers Moccasin Driving Shoes' [SEP] '$15.99 to $32.99'"
    )
    page = results_page([], 2, 50).split(" [SEP] ")
    assert page[1:4] == ["'Page 2 (Total results: 50)'", "'< Prev'", "'Next >'"]
    assert item_page(product) == (
        "'Back to Search' [SEP] '< Prev' [SEP] 'size' [SEP] '6.5' [SEP] '7' [SEP] 'color' [SEP] 'black | b' [SEP] "
        "'blue' [SEP] 'MCICI Mens Loafers Moccasin Driving Shoes' [SEP] 'Price: $15.99 to $32.99' [SEP] "
        "'Rating: N.A.' [SEP] 'Description' [SEP] 'Features' [SEP] 'Reviews' [SEP] 'Buy Now'"
    )


def test_the_last_page_has_the_form_of_node_5(shop: WebshopWorld) -> None:
    engine = shop.engine()
    engine.start(shop.tasks("test")[0])
    for action in engine.plan():
        last = engine.step(action)
    begun = (
        "'Thank you for shopping with us!' [SEP] 'Your code:' [SEP] 'None' [SEP] '(Paste it in your MTurk interface.)'"
    )
    ended = text_of(["Reward", "Your score (min 0.0, max 1.0)", "1.0", "Reward Details", "None"])
    assert last.text.startswith(f"{begun} [SEP] 'Purchased' [SEP] 'asin' [SEP] ")
    assert last.text.endswith(ended)
    assert (last.reward, last.end, last.actions) == (1.0, "success", ())
    again = engine.step("click[back to search]")
    assert (again.accepted, again.end, again.state) == (False, "success", last.state)


def test_every_page_leads_where_webshop_leads(shop: WebshopWorld) -> None:
    engine = at_item(shop)
    item = engine.snapshot()
    assert engine.step("click[features]").text.count("[SEP]") == 3
    assert engine.step("click[buy now]").accepted is False
    assert engine.step("click[< prev]").text == item_page(engine.product())
    assert engine.step("click[description]").accepted
    assert engine.step("click[< prev]").accepted
    back = engine.step("click[< prev]")
    assert "Page 1" in back.text
    second = engine.step("click[next >]")
    assert "Page 2" in second.text
    assert engine.step("click[< prev]").state == back.state
    assert engine.step("click[back to search]").text == "'Search'"
    assert engine.step("click[search]").accepted is False
    engine.restore(item)
    assert "Page 1" in engine.step("search[ANYTHING rug]").text, "a search is possible everywhere"


def test_search_is_accepted_in_any_spelling_and_lower_cased(shop: WebshopWorld) -> None:
    engine = shop.engine()
    engine.start(shop.tasks("test")[0])
    states = set()
    for action in ("search[Rubber Sole]", "search [ rubber sole ]", " SEARCH[rubber sole]"):
        engine.start(shop.tasks("test")[0])
        states.add(engine.step(action).state)
    assert len(states) == 1
    page = engine.step("search[zzzz qqqq]").text.split(" [SEP] ")
    assert page[:2] == ["'Back to Search'", "'Page 1 (Total results: 0)'"]


@pytest.mark.parametrize(
    "action",
    ["", "buy", "click[]", "click[b000000000]", "search[", "\x00\x1b[2J", "a" * 100_000, f"search[{'a ' * 50_000}]"],
)
def test_what_leads_nowhere_is_not_accepted_and_changes_nothing(shop: WebshopWorld, action: str) -> None:
    engine = at_item(shop)
    before = engine.step("click[nothing]")
    after = engine.step(action)
    assert (after, after.accepted) == (before, False)


def test_equal_keys_mean_the_same_page_query_and_options(shop: WebshopWorld) -> None:
    engine = at_item(shop)
    start = engine.snapshot()
    color, size, _ = engine.plan()
    one = [engine.step(color), engine.step(size)]
    engine.restore(start)
    other = [engine.step(size), engine.step("click[features]"), engine.step("click[< prev]"), engine.step(color)]
    assert one[-1].state == other[-1].state
    assert len({observation.state for observation in (*one, *other[:2])}) == 4
    assert one[0].text == one[1].text, "the page does not show what was clicked"
    assert one[0].canonical != one[1].canonical
    again = engine.step(color)
    assert (again.accepted, again.looked, again.state) == (True, True, other[-1].state)
    assert not other[1].looked


def test_canonical_states_of_one_page_meet_whatever_was_searched(shop: WebshopWorld) -> None:
    engine = shop.engine()
    engine.start(shop.tasks("test")[0])
    reached = []
    for query in (engine.goal.product.title, engine.goal.product.title + " shop"):
        engine.step(f"search[{query}]")
        reached.append(engine.step(f"click[{engine.goal.product.asin}]"))
    assert reached[0].canonical == reached[1].canonical
    assert reached[0].state != reached[1].state


def test_the_expert_buys_rightly_from_anywhere(shop: WebshopWorld) -> None:
    engine = shop.engine()
    rng = random.Random(1)
    for task in shop.tasks("test")[:60]:
        observation = engine.start(task).observation
        for _ in range(rng.randrange(8)):
            moves = [action for action in observation.actions if "buy" not in action]
            observation = engine.step(rng.choice(moves).replace("<your query>", "rubber sole rug tea"))
        for action in engine.plan():
            observation = engine.step(action)
        assert (observation.reward, observation.end) == (1.0, "success")
    with refusal(4):
        engine.plan()


def test_a_snapshot_restores_the_page_and_what_was_observed(shop: WebshopWorld) -> None:
    engine = shop.engine()
    rng = random.Random(3)
    kept = [(shop.tasks("train")[0], engine.start(shop.tasks("train")[0]).observation, engine.snapshot())]
    for _ in range(200):
        _, observation, snapshot = rng.choice(kept)
        assert engine.restore(snapshot) == observation
        action = rng.choice([*observation.actions, "nonsense", "search[jacket]"])
        kept.append((None, engine.step(action), engine.snapshot()))


def test_tasks_of_other_settings_are_refused(shop: WebshopWorld) -> None:
    engine = shop.engine()
    task = shop.tasks("test")[0]
    foreign = [
        world(products=100, seed=1).tasks("test")[0],
        Task(id="pick/trial_1", world="alfworld", split="train", kind="pick"),
        Task(id=task.id.replace("/0-", "/1-"), world="webshop", split="test", kind=task.kind),
        Task(id=task.id.replace("/0-", "/99999999-"), world="webshop", split="test", kind=task.kind),
    ]
    for one in foreign:
        refused(partial(engine.start, one), 3, "environment.options")


@pytest.mark.parametrize(
    ("options", "field", "remedy"),
    [
        ({"products": 3}, "products", "20"),
        ({"kinds": ["loafer"]}, "kinds", "loafers"),
        ({"goals": "humans"}, "goals", "human"),
        ({"goals": "human"}, "goals", "--data"),
        ({"size": "all"}, "size", "--data"),
        ({"product": 100}, "product", "products"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, object], field: str, remedy: str) -> None:
    settings = EnvironmentSettings(name="webshop", options=options)
    refused(lambda: make_world(settings), names=f"environment.options.{field}", remedy=remedy)
