"""The tutor: the wish read off an instruction, a short prompt in known words, an expert with its faults."""

from typing import Any

import playing
import pytest
from agentcli.environments.protocol import Context
from agentcli.policies.tiny import make_tokenizer
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.webshop.tutor import WebshopHabits, Wish, read_page, wish_of
from agentcli.worlds.webshop.world import WebshopWorld

SOUND = WebshopHabits(wander=0)


@pytest.fixture(scope="module")
def shop() -> WebshopWorld:
    return WebshopWorld(EnvironmentSettings(name="webshop", options={"products": 200}))


def play(
    shop: WebshopWorld, task: Task, seed: int, habits: WebshopHabits, stray: dict[int, str] | None = None
) -> tuple[Any, list[Context], list[str]]:
    """The last observation, the contexts of all decisions, and the actions; some are not the expert's."""

    def choose(context: Context) -> str:
        return (stray or {}).get(len(context.actions) + 1) or shop.next(context, seed, habits).action

    contexts, last = playing.play(shop.engine(), task, choose, 20, accepted=True)
    return last, contexts[:-1], list(contexts[-1].actions)


@pytest.mark.parametrize(
    ("instruction", "wish"),
    [
        (
            "Find me loose fit tops with short sleeve with color: b2-wine, and size: medium, and price lower than 50.00 dollars",
            Wish(("loose", "fit", "tops", "short", "sleeve"), (("color", "b2-wine"), ("size", "medium")), 50.0),
        ),
        (
            "i need a long lasting lamp, and price lower than 20.00 dollars",
            Wish(("long", "lasting", "lamp"), (), 20.0),
        ),
        ("Find me a rug", Wish(("rug",), (), None)),
    ],
)
def test_the_wish_is_read_off_the_instruction(instruction: str, wish: Wish) -> None:
    assert wish_of(instruction) == wish


def test_the_sound_expert_wins_nearly_always_and_each_fault_costs(shop: WebshopWorld) -> None:
    tasks = shop.tasks("test")[:60]
    won = {}
    for habits in (SOUND, WebshopHabits(), WebshopHabits(forget=1.0, wander=0), WebshopHabits(overlook=1.0, wander=0)):
        ends = [play(shop, task, seed, habits)[0] for seed, task in enumerate(tasks)]
        won[habits] = sum(observation.end == "success" for observation in ends) / len(tasks)
    sound, wandering, forgetful, careless = won.values()
    assert min(sound, wandering) > 0.85
    assert forgetful == 0
    assert careless < 0.5


def test_prompts_are_short_and_their_words_are_known_to_a_tiny_tokenizer(shop: WebshopWorld) -> None:
    prompts: list[str] = []
    actions: list[str] = []
    for seed, task in enumerate(shop.tasks("test")[:30]):
        _, contexts, taken = play(shop, task, seed, SOUND)
        prompts += [shop.compact(context) for context in contexts]
        actions += taken
    assert max(len(prompt.split()) for prompt in prompts) < 60
    shown = []
    for seed, task in enumerate(shop.tasks("train")[:40]):
        _, contexts, taken = play(shop, task, seed, SOUND)
        shown += [*map(shop.compact, contexts), *taken]
    tokenizer = make_tokenizer(shown, shop.vocabulary())
    unknown = tokenizer.unk_token_id
    assert all(unknown not in tokenizer(text)["input_ids"] for text in (*prompts, *actions))
    assert max(len(tokenizer(action)["input_ids"]) for action in actions) < 14
    click = next(action for action in actions if action.startswith("click[b0"))
    assert len(tokenizer(click)["input_ids"]) == 3


def test_what_a_tiny_policy_writes_is_the_action_it_was_shown(shop: WebshopWorld) -> None:
    tokenizer = make_tokenizer(["features"], shop.vocabulary())
    _, _, actions = play(shop, shop.tasks("test")[0], 0, SOUND)
    assert [tokenizer.decode(tokenizer(action)["input_ids"]) for action in actions] == actions


def test_after_an_unreadable_response_the_tutor_goes_by_the_last_page(shop: WebshopWorld) -> None:
    task = shop.tasks("test")[0]
    _, contexts, _ = play(shop, task, 0, SOUND)
    before = contexts[1]
    after = Context(
        task=task,
        instruction=before.instruction,
        observations=(*before.observations, "The response held no readable action."),
        actions=(*before.actions, ""),
        admissible=before.admissible,
    )
    assert shop.next(after, 0, SOUND) == shop.next(before, 0, SOUND)
    assert shop.compact(after) == shop.compact(before) + "\nlast nothing"


RESULTS = (
    "'Back to Search' [SEP] 'Page 1 (Total results: 1)' [SEP] 'Next >' [SEP] 'B000000001' [SEP] 'A rug' [SEP] '$5.00'"
)
ITEM = " [SEP] ".join(
    f"'{piece}'"
    for piece in (
        *("Back to Search", "< Prev", "color", "black", "grey", "size", "8", "9"),
        *("A rug", "Price: $5.00", "Rating: N.A.", "Description", "Features", "Reviews", "Buy Now"),
    )
)


@pytest.mark.parametrize(
    ("clicks", "standing"),
    [
        (("grey", "8"), ["chosen", "chosen"]),
        (("grey", "8", "black"), ["here", "chosen"]),
        (("grey", "8", "black", "grey"), ["chosen", "chosen"]),
        (("grey", "", "8", "nonsense"), ["chosen", "chosen"]),
        (("grey", "color"), ["chosen", "here"]),
    ],
)
def test_a_value_stands_until_another_of_its_option_replaces_it(
    shop: WebshopWorld, clicks: tuple[str, ...], standing: list[str]
) -> None:
    """An unreadable or refused response changes nothing."""
    texts = [ITEM if click else "The response held no readable action." for click in clicks]
    context = Context(
        task=shop.tasks("test")[0],
        instruction="Find me a rug with color: grey, and size: 8",
        observations=("'Search'", RESULTS, ITEM, *texts),
        actions=("search[rug]", "click[b000000001]", *(f"click[{click}]" if click else "" for click in clicks)),
    )
    lines = shop.compact(context).split("\n")
    assert lines[2:4] == [f"grey color {standing[0]}", f"8 size {standing[1]}"]
    wanted = dict(zip(standing, ("click[grey]", "click[8]"), strict=True))
    assert shop.next(context, 0, SOUND).action == wanted.get("here", "click[buy now]")


def test_a_value_clicked_on_a_sub_page_is_not_chosen(shop: WebshopWorld) -> None:
    sub_page = "'Back to Search' [SEP] '< Prev' [SEP] 'Soft.'"
    context = Context(
        task=shop.tasks("test")[0],
        instruction="Find me a rug with color: grey, and size: 8",
        observations=("'Search'", RESULTS, ITEM, sub_page, sub_page, ITEM),
        actions=("search[rug]", "click[b000000001]", "click[features]", "click[grey]", "click[< prev]"),
    )
    assert "grey color here" in shop.compact(context).split("\n")


def test_what_another_copy_opened_is_not_settled_for(shop: WebshopWorld) -> None:
    """The texts of another copy stand first; its visit does not make this one a second visit."""
    seen = ("'Search'", RESULTS, ITEM)
    context = Context(
        task=shop.tasks("test")[0],
        instruction="Find me a rug with color: pink",
        observations=(*seen, *seen),
        actions=("search[rug]", "click[b000000001]"),
    )
    assert shop.next(context, 0, SOUND).action == "click[< prev]"


def test_two_products_of_one_title_are_two(shop: WebshopWorld) -> None:
    twins = f"{RESULTS} [SEP] 'B000000002' [SEP] 'A rug' [SEP] '$6.00'"
    context = Context(
        task=shop.tasks("test")[0],
        instruction="Find me a rug with color: pink",
        observations=("'Search'", twins, ITEM, twins),
        actions=("search[rug]", "click[b000000002]", "click[< prev]"),
        admissible=("click[b000000001]", "click[b000000002]"),
    )
    assert shop.next(context, 0, SOUND).action == "click[b000000001]"
    assert "b000000001 fits cheap" in shop.compact(context).split("\n")


def test_whoever_went_back_to_the_search_page_searches_again(shop: WebshopWorld) -> None:
    task = shop.tasks("train")[0]
    last, _, actions = play(shop, task, 1, SOUND, stray={3: "click[back to search]"})
    assert actions[3].startswith("search[")
    assert last.end == "success"


def test_a_shop_without_hits_ends_in_rest(shop: WebshopWorld) -> None:
    empty = "'Back to Search' [SEP] 'Page {} (Total results: 0)' [SEP] '< Prev' [SEP] 'Next >'"
    texts = ("'Search'", empty.format(1), empty.format(2))
    context = Context(
        task=shop.tasks("test")[0],
        instruction="Find me a unicorn",
        observations=texts,
        actions=("search[unicorn]", "click[next >]"),
    )
    assert shop.next(context, 0, SOUND).sentence == "done"
    assert shop.compact(context).split("\n")[0] == "task unicorn"


def test_every_page_is_told_apart() -> None:
    kinds = [
        read_page(text).kind
        for text in (
            "'Search'",
            "'Back to Search' [SEP] 'Page 1 (Total results: 0)' [SEP] 'Next >'",
            "'Back to Search' [SEP] '< Prev' [SEP] 'A sentence.'",
            "whatever",
        )
    ]
    assert kinds == ["search", "results", "sub", "other"]
