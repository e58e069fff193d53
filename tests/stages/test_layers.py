"""Settings layers: precedence, merging, and errors that name the place and the key."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from agentcli.credit.registry import METHODS, make, shared_switches, switches_of
from agentcli.errors import UsageError
from agentcli.exploration.settings import decode
from agentcli.records.settings import Settings
from agentcli.reports.output import to_yaml
from agentcli.stages.layers import find_preset, list_presets, resolve
from agentcli.stages.yaml_files import read_yaml
from hypothesis import given
from hypothesis import strategies as st
from refusal import refused


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def only(sets: list[str] | None = None, **layers: Any) -> Settings:
    """resolve() with nothing but what is named."""
    empty: dict[str, Any] = {"preset": None, "files": [], "environ": {}, "flags": {}}
    return resolve(**{**empty, "sets": sets or [], **layers})


def test_without_layers_the_defaults_hold() -> None:
    assert only() == decode({})


def test_precedence_of_all_layers(tmp_path: Path) -> None:
    """Each layer sets its own key and every key of the layers below; the highest one that sets a key wins."""
    keys = ["leaves", "distinct", "minimum_leaves", "concurrency", "tasks_per_step", "iteration"]

    def layer(level: int) -> str:
        return "rollout: {" + ", ".join(f"{key}: {level}" for key in keys[level - 1 :]) + "}"

    preset = write(tmp_path / "preset.yaml", layer(2))
    files = [write(tmp_path / "one.yaml", layer(3)), write(tmp_path / "two.yaml", layer(4))]
    environ = {f"AGENTCLI_ROLLOUT__{key.upper()}": "5" for key in keys[4:]}
    base = Settings()
    for key in keys:
        setattr(base.rollout, key, 1)
    result = only([], preset=str(preset), files=files, environ=environ, flags={"rollout.iteration": 6}, base=base)
    assert [getattr(result.rollout, key) for key in keys] == [1, 2, 3, 4, 5, 6]


def test_set_is_as_strong_as_a_flag_and_stronger_than_the_environment() -> None:
    assert only(["policy.temperature=0.7"], environ={"AGENTCLI_POLICY__TEMPERATURE": "0.1"}).policy.temperature == 0.7


def test_later_set_wins() -> None:
    assert only(["seed=1", "seed=2"]).seed == 2


def test_set_and_flag_of_one_setting_are_refused() -> None:
    refused(lambda: only(["rollout.leaves=3"], flags={"rollout.leaves": 4}), names=("--set", "rollout.leaves"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"rollout.leaves": -1}, "--leaves -1: rollout.leaves: expected int >= 1"),
        (
            {"policy.temperature": float("nan")},
            "option policy.temperature nan: policy.temperature: expected float >= 0.0",
        ),
        ({"policy.temperature": 1e30}, "option policy.temperature 1e+30: policy.temperature: expected float <= 1"),
        (
            {"tracking.to": ["wandb", "tensorbord"]},
            "option tracking.to wandb,tensorbord: tracking.to[1]: ",
        ),
    ],
)
def test_an_error_names_the_option_as_it_was_typed(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        only(flags=flags, names={"rollout.leaves": "--leaves"})
    assert str(caught.value).startswith(message)


def test_environment_variables_are_nested_by_double_underscores() -> None:
    environ = {
        "AGENTCLI_SEED": "3",
        "AGENTCLI_SFT__TINY__HIDDEN": "32",
        "AGENTCLI_CREDIT__METHOD": "spark",
        "HOME": "/x",
    }
    result = only(environ=environ)
    assert (result.seed, result.sft.tiny.hidden, result.credit) == (3, 32, {"method": "spark"})


def test_debug_and_cache_variables_are_no_settings() -> None:
    assert only(environ={"AGENTCLI_DEBUG": "1", "AGENTCLI_CACHE": "/tmp"}) == decode({})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("3E-4", 3e-4),
        ("1.5e-3", 1.5e-3),
        ("+2e2", 200.0),
        ("7", 7.0),
        ("0.25", 0.25),
        (".5", 0.5),
        ("010", 10.0),
    ],
)
def test_numbers_as_people_write_them(text: str, value: float) -> None:
    """PyYAML alone reads 1e-6 as a string."""
    assert only([f"train.learning_rate={text}"]).train.learning_rate == value


@pytest.mark.parametrize("word", ["on", "off"])
def test_a_word_that_older_yaml_reads_as_a_truth_value(word: str) -> None:
    assert only([f"train.packing={word}"]).train.packing == word


def test_values_of_set_are_yaml() -> None:
    result = only(
        [
            "environment.where={kind: [a, b]}",
            "rollout.method=spark",
            "rollout.branch=fixed:0.5",
            "environment.tasks=null",
            "train.adam_betas=[0.9, 0.98]",
        ]
    )
    assert result.environment.where == {"kind": ["a", "b"]}
    assert result.rollout.branch == "fixed:0.5"
    assert result.environment.tasks is None
    assert result.train.adam_betas == (0.9, 0.98)


def test_mappings_merge_by_key_and_lists_are_replaced(tmp_path: Path) -> None:
    one = write(
        tmp_path / "one.yaml", "environment: {where: {kind: [a], room: [x]}, options: {clutter: 3, deep: {p: 1}}}"
    )
    two = write(tmp_path / "two.yaml", "environment: {where: {kind: [b, c]}, options: {deep: {q: 2}}}")
    environment = only(files=[one, two]).environment
    assert environment.where == {"kind": ["b", "c"], "room": ["x"]}
    assert environment.options == {"clutter": 3, "deep": {"p": 1, "q": 2}}


def test_another_credit_method_starts_its_section_anew_with_the_shared_switches(tmp_path: Path) -> None:
    text = "credit: {method: rewardflow, gamma: 0.8, alpha_action: 2.0, success_reward: 3, invalid_penalty: 0.2}"
    preset = str(write(tmp_path / "a.yaml", text))
    shared = {"success_reward": 3, "invalid_penalty": 0.2}
    assert only(preset=preset, flags={"credit.method": "grpo"}).credit == {"method": "grpo", **shared}
    inherited = only(preset=preset)
    found = only(["credit.gamma=0.5", "credit.method=gigpo"], base=inherited)
    assert found.credit == {"method": "gigpo", "gamma": 0.5, **shared}


@pytest.mark.parametrize("method", ["carl", "chain", "dpepo"])
def test_another_exploration_method_starts_its_section_anew_with_what_all_have(method: str, tmp_path: Path) -> None:
    text = "{rollout: {method: spark, leaves: 6, roots: 3, branch: 'fixed:.5'}, evaluation: {vote: outcome}}"
    preset = str(write(tmp_path / "a.yaml", text))
    found = only(preset=preset, flags={"rollout.method": method})
    assert found == only(["rollout.leaves=6", f"rollout.method={method}", "evaluation.vote=outcome"])
    file = write(tmp_path / "b.yaml", "{rollout: {method: dpepo, copies: 2}, evaluation: {copies: 5}}")
    if method == "dpepo":
        assert only(preset=str(file), flags={"rollout.method": method}).evaluation.copies == 5
    else:
        assert only(preset=str(file), flags={"rollout.method": method}) == only([f"rollout.method={method}"])
        refused(lambda: only(files=[file], flags={"rollout.method": method}), names=(str(file), "evaluation.copies"))


def test_what_was_never_set_is_not_carried(tmp_path: Path) -> None:
    """A method's default is not a setting: dpepo has no penalty unless one is asked for, grpo 0.1."""
    for method in ("dpepo", "grpo", "carl"):
        plain = write(tmp_path / "plain.yaml", f"credit: {{method: {method}}}")
        assert only(files=[plain], flags={"credit.method": "dpepo"}).credit == {"method": "dpepo"}
    same = write(tmp_path / "same.yaml", "credit: {method: rewardflow, gamma: 0.8}")
    found = only(["credit.gamma=0.7"], files=[same], flags={"credit.method": "rewardflow"})
    assert found.credit == {"method": "rewardflow", "gamma": 0.7}
    both = only(["credit.success_reward=10"], flags={"credit.method": "spark"})
    assert both.credit == {"method": "spark", "success_reward": 10}


@pytest.mark.parametrize("method", ["spark", "gigpo"])
def test_what_the_user_wrote_for_a_method_is_never_left_out(method: str, tmp_path: Path) -> None:
    """gigpo has a gamma too; it means something else there."""
    file = write(tmp_path / "mine.yaml", "credit: {method: rewardflow, gamma: 0.8, success_reward: 2}")
    flags = {"credit.method": method}
    line = refused(lambda: only(files=[file], flags=flags), names=("credit.gamma", "rewardflow", method))
    assert line.startswith(str(file))
    assert "success_reward" not in line
    # What names no method is meant for the one that is taken.
    environ = {"AGENTCLI_CREDIT__GAMMA": "0.8"}
    assert only(environ=environ, flags=flags).credit == {"method": method, "gamma": 0.8}


def test_an_unknown_method_is_refused_where_its_switches_are_asked_for(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", "credit: {method: rewardflow, gamma: 0.8}")
    refused(lambda: only(["credit.method=sparc"], preset=str(file)), names=("credit.method", "sparc"), remedy="spark")


@given(st.sampled_from(sorted(METHODS)), st.sampled_from(sorted(METHODS)), st.data())
def test_shared_switches_of_a_preset_stay_and_no_others(former: str, method: str, data: st.DataObject) -> None:
    defaults = msgspec.to_builtins(make({"method": former})[2])
    some = data.draw(st.sets(st.sampled_from(sorted(defaults))))
    base = Settings(credit={"method": former, **{name: defaults[name] for name in some}})
    found = only(flags={"credit.method": method}, base=base).credit
    kept = {name for name in some if name in switches_of(method) and name in shared_switches()}
    assert found.keys() - {"method"} == (some if former == method else kept)


def test_how_tokens_are_averaged_is_not_inherited_from_another_method(tmp_path: Path) -> None:
    """CARL eq. 2 wants equal weights: a preset's RewardFlow eq. 11 must not come along to carl, nor the other way round."""
    preset = str(write(tmp_path / "a.yaml", "{credit: {method: rewardflow}, train: {aggregate: step}}"))
    assert only(preset=preset, flags={"credit.method": "carl"}).train.aggregate is None
    both = {"credit.method": "carl", "train.aggregate": "sequence"}
    assert only(preset=preset, flags=both).train.aggregate == "sequence"
    mine = write(tmp_path / "mine.yaml", "train: {aggregate: sequence}")
    assert only(preset=preset, files=[mine], flags={"credit.method": "carl"}).train.aggregate == "sequence"
    assert only(preset=preset).train.aggregate == "step"


def test_another_world_starts_its_options_anew(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", "environment: {name: alfworld, max_steps: 9, options: {clutter: 3}}")
    same = only(["environment.options.deep=1"], files=[file], flags={"environment.name": "alfworld"}).environment
    assert same.options == {"clutter": 3, "deep": 1}
    flags: dict[str, Any] = {"environment.name": "toy"}
    other = only(["environment.options.length=2"], files=[file], flags=flags).environment
    assert (other.name, other.max_steps, other.options) == ("toy", 9, {"length": 2})


def test_another_objective_starts_its_options_anew() -> None:
    recorded = {"train": {"objective": "ppo", "options": {"whiten": False}}}
    assert only(base=recorded).train.options == {"whiten": False}
    assert only(["train.objective=dpo"], base=recorded).train.options == {}


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("rollout.leavs", "rollout.leaves"),
        ("rolout.leaves", "rollout"),
        ("rollout.temperature", "policy.temperature"),
        ("seeds", "seed"),
        ("sft.tiny.layer", "sft.tiny.layers"),
    ],
)
def test_unknown_keys_name_the_place_and_the_nearest_name(key: str, nearest: str, tmp_path: Path) -> None:
    assert refused(lambda: only([f"{key}=1"]), names=nearest).startswith(f"--set {key}=1: ")
    variable = "AGENTCLI_" + key.upper().replace(".", "__")
    refused(lambda: only(environ={variable: "1"}), names=(f"{nearest}", f"{variable}"))
    section, _, rest = key.partition(".")
    file = write(tmp_path / "x.yaml", f"{section}: {{{rest}: 1}}" if rest and "." not in rest else f"{key}: 1")
    refused(lambda: only(files=[file]), names=str(file))


def test_an_unlike_name_lists_what_there_is() -> None:
    refused(lambda: only(["run.zzzzqqq=1"]), names="run.zzzzqqq", remedy="run.iterations")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("rollout.leaves=many", ("rollout.leaves", "int", "str")),
        ("policy.temperature=[1]", ("policy.temperature", "float", "array")),
        ("demos.keep=some", ("demos.keep", "all", "success")),
        ("rollout=3", ("rollout", "object", "int")),
        ("train.adam_betas=[0.9]", ("train.adam_betas", "2", "1")),
        ("environment.where.kind=one", ("environment.where", "array", "str")),
    ],
)
def test_wrong_types_say_what_was_expected(text: str, names: tuple[str, ...]) -> None:
    refused(lambda: only([text]), names=names)


@pytest.mark.parametrize("text", ["seed", "=1", "seed=[1"])
def test_a_set_that_is_no_assignment(text: str) -> None:
    refused(lambda: only([text]), names="--set")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rollout:\n  leaves: 1\n  leaves: 2\n", (":3: ", "leaves")),
        ("rollout: [", ":1: "),
        ("- a\n", "settings"),
        ("rollout: !!python/object/apply:os.getcwd []\n", "python/object"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(text: str, message: str | tuple[str, ...], tmp_path: Path) -> None:
    file = write(tmp_path / "bad.yaml", text)
    assert refused(lambda: only(files=[file]), names=message).startswith(str(file))


def test_a_missing_file_and_an_empty_one(tmp_path: Path) -> None:
    refused(lambda: only(files=[tmp_path / "no.yaml"]), names="no.yaml")
    assert only(files=[write(tmp_path / "empty.yaml", "# nothing\n")]) == decode({})


def test_a_base_of_another_version_is_bad_data() -> None:
    refused(lambda: only(base={"rollout": {"gone": 1}}), 3, names="recorded settings", remedy="--preset")


def test_base_given_as_a_struct_or_as_recorded_is_the_same() -> None:
    base = only(["credit.method=spark", "train.adam_betas=[0.9, 0.98]", "seed=4"])
    assert only(base=base) == only(base=msgspec.to_builtins(base)) == base


def test_unknown_preset_names_the_nearest() -> None:
    refused(lambda: find_preset("sparc-alfworld"), names="spark-alfworld")


def test_a_file_that_extends_a_preset_differs_only_in_what_it_says(tmp_path: Path) -> None:
    file = write(tmp_path / "mine.yaml", "extends: quickstart\nrollout: {leaves: 3}\n")
    assert only(files=[file]) == resolve("quickstart", [], {}, ["rollout.leaves=3"], {})
    assert resolve(str(file), [], {}, [], {}) == only(files=[file])


@pytest.mark.parametrize(
    ("base", "names"),
    [
        ("quickstrat", "quickstart"),
        ("[quickstart, quickstrat]", "quickstrat"),
        ("3", "no preset '3'"),
        ("{a: b}", "no preset"),
    ],
)
def test_only_a_shipped_preset_can_be_extended(tmp_path: Path, base: str, names: str) -> None:
    file = write(tmp_path / "mine.yaml", f"extends: {base}\n")
    refused(lambda: only(files=[file]), names=names, remedy="extends")


def test_what_a_preset_extends_may_extend_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "one.yaml", "extends: two\nrollout: {leaves: 3}\n")
    write(tmp_path / "two.yaml", "extends: three\nrollout: {leaves: 5, tasks_per_step: 6}\n")
    write(tmp_path / "three.yaml", "rollout: {leaves: 7, tasks_per_step: 8, concurrency: 9}\n")
    monkeypatch.setattr("agentcli.stages.layers.presets_folder", lambda: tmp_path)
    rollout = resolve("one", [], {}, [], {}).rollout
    assert (rollout.leaves, rollout.tasks_per_step, rollout.concurrency) == (3, 6, 9)


def test_of_several_presets_the_later_one_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "one.yaml", "rollout: {leaves: 5, tasks_per_step: 6}\n")
    write(tmp_path / "two.yaml", "rollout: {leaves: 7, concurrency: 9}\n")
    monkeypatch.setattr("agentcli.stages.layers.presets_folder", lambda: tmp_path)
    file = write(tmp_path / "mine.yaml", "extends: [one, two]\nrollout: {concurrency: 8}\n")
    rollout = only(files=[file]).rollout
    assert (rollout.leaves, rollout.tasks_per_step, rollout.concurrency) == (7, 6, 8)


def test_no_preset_extends_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, base in (("one", "two"), ("two", "three"), ("three", "one"), ("four", "four")):
        write(tmp_path / f"{name}.yaml", f"extends: {base}\n")
    monkeypatch.setattr("agentcli.stages.layers.presets_folder", lambda: tmp_path)
    refused(lambda: resolve("one", [], {}, [], {}), names="three.yaml: extends: one extends this preset in turn")
    refused(lambda: resolve("four", [], {}, [], {}), names="four.yaml: extends: four extends this preset in turn")


def test_every_shipped_preset_resolves_and_changes_something() -> None:
    names = [path.stem for path in list_presets()]
    assert {"quickstart", "grpo-alfworld", "spark-alfworld", "rewardflow-alfworld"} <= set(names)
    for name in names:
        assert resolve(name, [], {}, [], {}) != decode({})


def test_yaml_of_settings_reads_back(tmp_path: Path) -> None:
    settings = resolve("quickstart", [], {}, ["environment.where={kind: [a]}"], {})
    file = write(tmp_path / "all.yaml", to_yaml(settings))
    assert only(files=[file]) == settings
    assert list(read_yaml(file)) == list(Settings.__struct_fields__)


nested = st.recursive(
    st.integers(-(2**63), 2**63 - 1),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from("abc"), nested, max_size=3),
    st.dictionaries(st.sampled_from("abc"), nested, max_size=3),
)
def test_deep_merge_of_options(below: dict[str, Any], above: dict[str, Any]) -> None:
    """What a layer sets is there, what it does not mention stays, and merging it twice changes nothing."""

    def merged(*layers: dict[str, Any]) -> dict[str, Any]:
        base = Settings()
        for layer in layers:
            base = only(flags={"environment.options": layer}, base=base)
        return base.environment.options

    def leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], int]:
        if not isinstance(value, dict):
            return {path: value}
        return {key: leaf for name, inner in value.items() for key, leaf in leaves(inner, (*path, name)).items()}

    once = merged(below, above)
    assert merged(below, above, above) == once
    assert leaves(above).items() <= leaves(once).items()
    kept = {path: leaf for path, leaf in leaves(below).items() if path[0] not in above}
    assert kept.items() <= leaves(once).items()


def test_a_setting_of_another_method_is_refused_wherever_it_is_written(tmp_path: Path) -> None:
    path = write(tmp_path / "shared.yaml", "rollout: {leaves: 6, roots: 3}\n")
    spark = only(["rollout.method=spark"], files=[path])
    assert (spark.rollout.leaves, spark.rollout.roots) == (6, 3)
    refused(lambda: only(files=[path]), names=(str(path), "rollout.roots", "chain"), remedy="--method arpo or carl")
    refused(lambda: only(["rollout.roots=3"]), names=("rollout.roots", "chain"))
    write(path, "rollout: {method: chain, roots: 3}\n")
    refused(lambda: only(files=[path]), names=("rollout.roots", "chain"))


def test_the_nearest_name_may_be_another_methods() -> None:
    refused(lambda: resolve(None, [], {}, ["rollout.brnch=explore"], {}), names=("rollout.branch", "--method"))
