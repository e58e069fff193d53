"""Settings that differ from the defaults, as a dry run shows them."""

from agentcli.exploration.settings import changed_settings, decode


def test_only_what_differs_is_shown_and_the_method() -> None:
    settings = decode({"rollout": {"method": "carl", "leaves": 8, "roots": 2}, "train": {"lora": {"rank": 4}}})
    assert changed_settings(settings) == {"rollout": {"method": "carl", "roots": 2}, "train": {"lora": {"rank": 4}}}


def test_defaults_differ_in_nothing() -> None:
    assert changed_settings(decode({})) == {}
