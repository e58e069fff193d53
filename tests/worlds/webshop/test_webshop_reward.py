"""The reward agrees with its formula, computed here once more without the package's help or rapidfuzz."""

import random
import re

import msgspec
import pytest
from agentcli.worlds.webshop.generator import WebshopOptions, generated
from agentcli.worlds.webshop.goals import ShopGoal, goal_of, goals_of, matches, reward_of, type_reward
from agentcli.worlds.webshop.products import COLORS, HumanInstruction, Product

PRODUCTS = list(generated(WebshopOptions(products=400)))


def product(**fields: object) -> Product:
    """A product of which only some fields matter."""
    return msgspec.structs.replace(PRODUCTS[0], **fields)


def common(one: str, other: str) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(other) + 1)
    for left in one:
        before = row[:]
        for place, right in enumerate(other):
            row[place + 1] = before[place] + 1 if left == right else max(before[place + 1], row[place])
    return row[-1]


def ratio(one: str, other: str) -> float:
    total = len(one) + len(other)
    return 200 * common(one, other) / total if total else 0.0


def token_set_ratio(one: str, other: str) -> int:
    """As thefuzz defines it, in whole numbers."""
    left, right = (set(re.sub(r"[^a-z0-9]", " ", text.lower()).split()) for text in (one, other))
    if not left or not right:
        return 0
    shared = " ".join(sorted(left & right))
    first, second = (" ".join([shared, *sorted(rest)]).strip() for rest in (left - right, right - left))
    pairs = [(first, second)]
    if shared:
        pairs += [(shared, first), (shared, second)]
    return round(max(ratio(*pair) for pair in pairs))


def first_color(text: str) -> str:
    return next((color for color in COLORS if color in text), text)


def by_formula(goal: ShopGoal, pairs: dict[str, str], bought: Product, chosen: list[str]) -> float:
    """r_type * (attributes + options + price) / (wanted + 1), from the goal's product and its wanted options."""
    attributes = 0
    text = [bought.title.lower(), " ".join(bought.bullets).lower(), bought.description.lower()]
    for wanted in goal.attributes:
        listed = any(token_set_ratio(one, wanted) > 85 for one in bought.attributes)
        attributes += listed or any(wanted in one for one in text)
    options = 0
    for name, value in pairs.items():
        colors = [color for color in COLORS if color in (name, value)]
        wanted = colors[0] if colors else f"{name} {value}"
        options += any(token_set_ratio(first_color(one), wanted) > 85 for one in chosen)
    low, high = bought.prices[0], bought.prices[-1]
    assert low <= bought.price <= high
    share = (attributes + options + (bought.price <= goal.price_upper)) / (len(goal.attributes) + len(pairs) + 1)
    wanted_words, words = (
        {word for word in re.split("[^a-z0-9]+", one.title.lower()) if word.isalpha()} - {"with"}
        for one in (goal.product, bought)
    )
    overlap = len(wanted_words & words) / len(wanted_words)
    paths = [set(map(str.strip, one.product_category.split("›"))) for one in (goal.product, bought)]
    alike = goal.product.query == bought.query or len(paths[0] & paths[1]) >= 2 or overlap > 0.2
    sort = 1.0 if alike else 0.5
    if overlap < 0.1:
        sort = 0.1
    return (0.0 if overlap == 0 else sort) * share


def test_it_agrees_with_the_formula_on_a_thousand_random_baskets() -> None:
    rng = random.Random(5)
    rewards = set()
    for _ in range(1000):
        wanted = rng.choice(PRODUCTS)
        goal = goal_of(wanted, "synthetic", rng.randrange(goals_of(wanted, "synthetic")))
        asked = dict(pair.split(": ") for pair in re.findall(r"(?:with|and) ([a-z]+: [^,]+)", goal.instruction))
        alike = [one for one in PRODUCTS if one.query == wanted.query]
        bought = rng.choice([wanted, rng.choice(alike), rng.choice(PRODUCTS)])
        chosen = [rng.choice(values) for values in bought.options.values() if rng.random() < 0.7]
        if bought is wanted and rng.random() < 0.5:
            chosen = list(asked.values())
        reward = reward_of(goal, bought, chosen)
        assert reward == pytest.approx(by_formula(goal, asked, bought, chosen), abs=1e-12)
        rewards.add(round(reward, 3))
    assert {0.0, 1.0} < rewards
    assert len(rewards) > 10


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("essential oil", "essential oils", True),
        ("powder snow", "cool powder snow", True),
        ("tea bag", "tea tree", False),
        ("large", "size x-large", True),
        ("x-large", "size large", False),
        ("", "tea tree", False),
    ],
)
def test_texts_match_by_their_sets_of_words(one: str, other: str, alike: bool) -> None:
    assert matches(one, other) is alike
    assert (token_set_ratio(one, other) > 85) is alike


@pytest.mark.parametrize(
    ("changes", "worth"),
    [
        ({}, 1.0),
        ({"query": "other", "product_category": "x"}, 1.0),
        ({"title": "Lamp", "query": "other", "product_category": "x"}, 0.0),
        ({"title": "Lamp"}, 0.0),
        ({"title": "one"}, 0.1),
        ({"title": "one two", "query": "other", "product_category": "x"}, 0.5),
        ({"title": "one two"}, 1.0),
    ],
)
def test_the_sort_of_product_counts(changes: dict[str, str], worth: float) -> None:
    wanted = product(title="one two three four five six seven eight nine ten eleven")
    assert type_reward(wanted, msgspec.structs.replace(wanted, **changes)) == worth


def test_a_repeated_word_of_the_wanted_title_counts_twice_below_the_line() -> None:
    # WebShop divides the shared words, as a set, by the list of the wanted title's words: 1 of 11, not 1 of 9.
    wanted = product(title="lamp lamp lamp four five six seven eight nine ten eleven")
    elsewhere = {"query": "other", "product_category": "x"}
    assert type_reward(wanted, msgspec.structs.replace(wanted, title="Lamp", **elsewhere)) == 0.1
    assert type_reward(wanted, msgspec.structs.replace(wanted, title="lamp lamp four", **elsewhere)) == 0.5


def test_hyphens_and_apostrophes_part_words() -> None:
    wanted = product(title="Women's T-Shirt 4K 12oz")
    assert type_reward(wanted, msgspec.structs.replace(wanted, title="Women T Shirt")) == 1.0
    assert type_reward(wanted, msgspec.structs.replace(wanted, title="Lamp 12oz 's 4K")) == 0.0


def test_a_human_goal_asks_for_its_own_options_and_one_without_attributes_is_none() -> None:
    asked = HumanInstruction("I need shoes.", ("rubber sole",), ("dark grey",))
    empty = HumanInstruction("Nothing.", ())
    one = product(human=(empty, asked), prices=(990.0,))
    assert goals_of(one, "human") == 1
    goal = goal_of(one, "human", 0)
    assert (goal.instruction, goal.options, goal.price_upper) == ("I need shoes", ("dark",), 1_000_000.0)


def test_limits_lie_above_the_price_and_are_the_same_in_every_process() -> None:
    goals = [goal_of(one, "synthetic", 0) for one in PRODUCTS]
    for goal in goals:
        assert goal.product.price < goal.price_upper <= goal.product.price + 40
        assert goal.price_upper % 10 == 0
    assert [goal.price_upper for goal in goals[:5]] == [
        goal_of(one, "synthetic", 0).price_upper for one in PRODUCTS[:5]
    ]
