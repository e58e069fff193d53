"""WebShop's own files in their layout, made here: both sizes, human goals, and what is wrong with real downloads."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentcli.records.settings import EnvironmentSettings
from agentcli.worlds import bm25, webshop
from agentcli.worlds.webshop.generator import WebshopOptions, rows
from agentcli.worlds.webshop.world import WebshopWorld
from command_line import agentcli
from refusal import refused

PRODUCTS = 60


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTCLI_CACHE", str(tmp_path / "cache"))


def product_rows() -> list[dict[str, Any]]:
    """Rows as the real files have them, with fields that nothing reads, and some that the loader skips."""
    products = []
    for raw, _ in rows(WebshopOptions(products=PRODUCTS)):
        options = {
            name.title(): [{"value": one.value, "image": None, "url": "x"} for one in values or ()]
            for name, values in raw.customization_options.items()  # type: ignore[union-attr]
        }
        row = {name: getattr(raw, name) for name in raw.__struct_fields__}
        products.append({**row, "customization_options": options, "images": ["x.jpg"], "brand": "y", "list_price": 3.5})
    products[1]["pricing"] = None
    del products[2]["pricing"]
    products[3] |= {"small_description": "One line", "customization_options": ""}
    products[4]["customization_options"] = {**products[4]["customization_options"], "Style": None}
    return [*products, products[0], {**products[0], "asin": "nan"}, {**products[0], "asin": "B0123456789"}]


def write(folder: Path, size: str = "small") -> Path:
    """A data folder of one size."""
    folder.mkdir(exist_ok=True)
    ending = {"small": "_1000", "all": ""}[size]
    attributes: dict[str, Any] = {}
    human: dict[str, Any] = {}
    for raw, one in rows(WebshopOptions(products=PRODUCTS)):
        attributes[raw.asin] = {name: getattr(one, name) for name in one.__struct_fields__}
        wish = {"instruction": "Get me this.", "instruction_attributes": one.instruction_attributes}
        human[raw.asin] = [{**wish, "instruction_options": []}]
    for asin in list(attributes)[5:10]:
        attributes[asin] = {"attributes": ["only these"]}
    del attributes[list(attributes)[10]]
    for name, value in (
        (f"items_shuffle{ending}.json", product_rows()),
        (f"items_ins_v2{ending}.json", attributes),
        ("items_human_ins.json", human),
    ):
        (folder / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return folder


def world(folder: Path | str | None, **options: Any) -> WebshopWorld:
    data = None if folder is None else str(folder)
    return WebshopWorld(EnvironmentSettings(name="webshop", data=data, options=options))


def wins(made: WebshopWorld) -> int:
    """Number of the first twenty tasks that the expert wins; all of them, or this fails."""
    engine = made.engine()
    tasks = made.tasks("train")[:20]
    for task in tasks:
        engine.start(task)
        for action in engine.plan():
            observation = engine.step(action)
        assert (observation.reward, observation.end) == (1.0, "success"), task
    return len(tasks)


@pytest.mark.parametrize("size", ["small", "all"])
@pytest.mark.parametrize("goals", ["synthetic", "human"])
def test_both_sizes_load_and_can_be_won(tmp_path: Path, size: str, goals: str) -> None:
    made = world(write(tmp_path / "data", size), size=size, goals=goals, tests=10)
    assert len(made.tasks("test")) == 10
    if goals == "human":
        assert len(made.tasks("train")) == PRODUCTS - 10
    assert wins(made) == 20


def test_both_sizes_give_the_same_tasks_and_pages(tmp_path: Path) -> None:
    small, large = (world(write(tmp_path / size, size), size=size) for size in ("small", "all"))
    one, other = small.tasks("test"), large.tasks("test")
    assert [task.id.partition("/")[2] for task in one] == [task.id.partition("/")[2] for task in other]
    engines = (small.engine(), large.engine())
    for tasks in zip(one[:5], other[:5], strict=True):
        starts = [engine.start(task) for engine, task in zip(engines, tasks, strict=True)]
        assert starts[0] == starts[1]
        for action in engines[0].plan():
            observations = [engine.step(action) for engine in engines]
            assert observations[0].text == observations[1].text


def test_the_large_one_is_read_once_and_again_when_the_file_changes(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", "all")
    for _ in range(2):
        world(folder, size="all").tasks("test")
    made = list((tmp_path / "cache" / "webshop").iterdir())
    assert len(made) == 1
    assert {path.name for path in made[0].iterdir()} == {"products.jsonl", "offsets.npy", "askers.json", "bm25"}


def test_the_first_reading_of_large_files_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write(tmp_path / "data", "all")
    monkeypatch.setattr(webshop.world, "LONG", 0)
    monkeypatch.setattr(bm25, "MANY", 0)
    words = ("env", "panel", "webshop", "--data", str(data), "--set", "environment.options.size=all")
    shown = agentcli(*words).stderr
    assert all(name in shown for name in ("items_ins_v2.json", "items_shuffle.json", "search index"))
    assert agentcli(*words).stderr == ""


def test_a_row_without_a_price_costs_a_hundred_dollars(tmp_path: Path) -> None:
    products = world(write(tmp_path / "data")).catalogue.products
    assert [products[place].price for place in (1, 2)] == [100.0, 100.0]
    assert products[3].options == {}
    assert products[3].bullets == ("One line",)
    assert products[10].attributes == ("DUMMY_ATTR",)
    assert len(products) == PRODUCTS


def test_a_variable_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBSHOP_DATA", str(write(tmp_path / "data")))
    assert world(None).tasks("test")[0].id.startswith("small-synthetic/")
    (requisite,) = WebshopWorld.requisites({"WEBSHOP_DATA": str(tmp_path / "data")})
    assert (requisite.present, requisite.get) == (True, None)
    assert not WebshopWorld.requisites({"WEBSHOP_DATA": str(tmp_path)})[0].present
    assert not WebshopWorld.requisites({})[0].present


def damage(folder: Path, name: str, change: Any) -> Path:
    path = folder / name
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    return path


SHUFFLED, ATTRIBUTES = "items_shuffle_1000.json", "items_ins_v2_1000.json"


@pytest.mark.parametrize("name", [SHUFFLED, ATTRIBUTES])
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "<!DOCTYPE html><html>Google Drive</html>",
        lambda text: text[:1] + text[-1:],
    ],
    ids=["half", "empty", "page", "no rows"],
)
def test_a_half_downloaded_file_is_named_in_one_line(tmp_path: Path, name: str, change: Any) -> None:
    folder = write(tmp_path / "data")
    path = damage(folder, name, change)
    refused(lambda: world(folder).tasks("test"), code=3, names=str(path), remedy="download it again")


@pytest.mark.parametrize(
    ("field", "value", "names"),
    [
        ("pricing", "$twelve", ("row 8", "$.pricing")),
        ("pricing", 12, ("row 8", "$.pricing")),
        ("name", None, ("row 8", "$.name")),
        ("customization_options", {"size": [{"image": "x"}]}, ("row 8", "value")),
    ],
)
def test_a_bad_row_is_named_in_one_line(tmp_path: Path, field: str, value: Any, names: tuple[str, ...]) -> None:
    folder = write(tmp_path / "data")

    def change(text: str) -> str:
        products = json.loads(text)
        products[7][field] = value
        return json.dumps(products)

    path = damage(folder, SHUFFLED, change)
    refused(lambda: world(folder).tasks("test"), code=3, names=(str(path), *names))


def test_a_missing_folder_or_file_is_refused(tmp_path: Path) -> None:
    refused(lambda: world(tmp_path / "nowhere"), code=3, names=("--data", SHUFFLED), remedy="leave the folder out")
    folder = write(tmp_path / "data")
    refused(lambda: world(folder, size="all"), code=3, names="items_shuffle.json", remedy="size=small")


def test_files_without_goals_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "data")
    damage(folder, ATTRIBUTES, lambda text: '{"B000000000": {"attributes": []}}')
    refused(lambda: world(folder).tasks("test"), code=3, names=str(folder), remedy="goals")
