"""agentcli preset as a user meets it: list, show, copy, and go on with the copy."""

import json
from pathlib import Path

import pytest
from agentcli.stages.layers import find_preset, list_presets, resolve
from command_line import agentcli, files_below

pytestmark = pytest.mark.usefixtures("empty_folder")


def test_list_says_what_each_is_for() -> None:
    rows = [json.loads(line) for line in agentcli("preset", "list", "--json").stdout.splitlines()]
    assert [row["preset"] for row in rows] == [path.stem for path in list_presets()]
    table = agentcli("preset", "list").stdout
    for row in rows:
        assert len(row["for"]) > 20
        assert not row["for"].startswith("#")
        assert row["preset"] in table


def test_a_copy_is_the_file_itself_and_says_what_to_type() -> None:
    answer = agentcli("preset", "copy", "quickstart", "here/my preset.yaml")
    assert (answer.code, answer.stdout) == (0, "here/my preset.yaml\n")
    assert answer.stderr == "change it, then type -c 'here/my preset.yaml' in the place of --preset quickstart\n"
    copied = Path("here/my preset.yaml")
    assert copied.read_bytes() == find_preset("quickstart").read_bytes()
    assert resolve(None, [copied], {}, [], {}) == resolve("quickstart", [], {}, [], {})


def test_without_a_file_it_is_written_here_by_its_name() -> None:
    assert agentcli("preset", "copy", "spark-alfworld", "-q").stderr == ""
    assert list(files_below(Path())) == ["spark-alfworld.yaml"]
    Path("sub").mkdir()
    assert agentcli("preset", "copy", "spark-alfworld", "sub").stdout == "sub/spark-alfworld.yaml\n"


def test_what_ends_in_a_slash_is_a_folder() -> None:
    Path("old").mkdir()
    for folder in ("old/", "new/", "new/deep//"):
        answer = agentcli("preset", "copy", "quickstart", folder, "--dry-run")
        assert (answer.code, answer.stdout) == (0, f"{Path(folder)}/quickstart.yaml\n")
    assert list(files_below(Path())) == ["old"]
    for folder in ("old/", "new/", "new/deep//"):
        assert agentcli("preset", "copy", "quickstart", folder).code == 0
    copies = sorted(str(path) for path in Path().rglob("*.*"))
    assert copies == ["new/deep/quickstart.yaml", "new/quickstart.yaml", "old/quickstart.yaml"]
    assert {Path(copy).read_bytes() for copy in copies} == {find_preset("quickstart").read_bytes()}
    Path("file").write_bytes(b"")
    answer = agentcli("preset", "copy", "quickstart", "file/")
    assert answer.code == 1
    assert answer.stderr == "error: file/quickstart.yaml: cannot be written (Not a directory); name another FILE\n"
    assert agentcli("preset", "copy", "quickstart", "quickstart.yaml").stdout == "quickstart.yaml\n"


def test_an_existing_file_is_kept_unless_overwritten() -> None:
    Path("mine.yaml").write_text("seed: 1", encoding="utf-8")
    answer = agentcli("preset", "copy", "quickstart", "mine.yaml")
    assert (answer.code, answer.stdout) == (2, "")
    assert answer.stderr == "error: mine.yaml exists; replace it with --overwrite\n"
    assert Path("mine.yaml").read_text(encoding="utf-8") == "seed: 1"
    assert agentcli("preset", "copy", "quickstart", "mine.yaml", "--overwrite").code == 0
    assert Path("mine.yaml").read_bytes() == find_preset("quickstart").read_bytes()


def test_a_place_that_cannot_be_written_to_asks_for_another_file() -> None:
    Path("a-file").write_bytes(b"")
    Path("nowhere.yaml").symlink_to("none/none")
    for file, code, fault in (
        ("a-file/mine.yaml", 1, "a-file/mine.yaml: cannot be written (Not a directory)"),
        ("nowhere.yaml", 2, "nowhere.yaml is a link that leads nowhere"),
    ):
        answer = agentcli("preset", "copy", "quickstart", file)
        assert (answer.code, answer.stdout) == (code, "")
        assert answer.stderr == f"error: {fault}; name another FILE\n"
    assert Path("nowhere.yaml").is_symlink()


def test_dry_run_writes_nothing() -> None:
    answer = agentcli("preset", "copy", "quickstart", "here/mine.yaml", "--dry-run")
    assert (answer.code, answer.stdout) == (0, "here/mine.yaml\n")
    assert files_below(Path()) == {}


@pytest.mark.parametrize("command", ["show", "copy"])
def test_no_preset_and_an_unknown_one(command: str) -> None:
    assert agentcli("preset", command).stderr == "error: name a preset; `agentcli preset list` shows them\n"
    answer = agentcli("preset", command, "quikstart")
    assert (answer.code, answer.stderr) == (2, "error: no preset 'quikstart'; did you mean quickstart?\n")
    assert (
        agentcli("preset", command, "./no.yaml").stderr
        == "error: no.yaml: cannot be read (No such file or directory)\n"
    )
    assert files_below(Path()) == {}
