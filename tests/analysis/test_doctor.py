"""doctor: each thing is found where it is, and otherwise the row says what to type."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from email.message import Message
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from agentcli.analysis.doctor import Finding, examine, issue
from agentcli.environments.protocol import Requisite
from agentcli.environments.registry import WORLDS
from agentcli.version import __version__


def named(findings: list[Finding]) -> dict[str, Finding]:
    assert len({finding.name for finding in findings}) == len(findings)
    return {finding.name: finding for finding in findings}


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def look(tmp_path: Path, **environ: str) -> dict[str, Finding]:
    return named(
        examine({"PATH": str(tmp_path / "bin"), "AGENTCLI_CACHE": str(tmp_path / "cache"), **environ}, tmp_path)
    )


def test_on_a_bare_machine_only_options_are_missing_and_each_says_how_to_get_it(tmp_path: Path) -> None:
    rows = look(tmp_path)
    missing = {name for name, row in rows.items() if not row.present}
    assert {"compiler", "scienceworld java", "alfworld data", "generated games"} <= missing
    assert all(row.present for row in rows.values() if row.required)
    assert {name for name, row in rows.items() if row.required} == {"python", "core", "torch"}
    assert all((row.get is None) == row.present for row in rows.values())
    assert not (tmp_path / "cache").exists()


def test_the_compiler_is_found_on_path_with_its_version(tmp_path: Path) -> None:
    compiler = program(tmp_path / "bin" / "g++", 'echo "g++ 12.2"; echo more')
    rows = look(tmp_path)
    assert (rows["compiler"].present, rows["compiler"].detail) == (True, f"{compiler}: g++ 12.2")


def test_cxx_comes_before_path(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "g++", "echo of-path")
    program(tmp_path / "bin" / "my-cc", "echo mine")
    rows = look(tmp_path, CXX="my-cc")
    assert rows["compiler"].detail.endswith("my-cc: mine")


def test_a_program_that_fails_is_not_found(tmp_path: Path) -> None:
    compiler = program(tmp_path / "bin" / "g++", "echo no license >&2; exit 3")
    row = look(tmp_path)["compiler"]
    assert (row.present, row.detail) == (False, f"{compiler} exits 3: no license")
    assert row.get is not None
    assert row.get.startswith("apt-get install")


def data_set(folder: Path) -> list[str]:
    """One game per split; returns the ids."""
    ids = [
        f"{split}/pick_and_place_simple-Mug-None-Desk-301/trial_1" for split in ("train", "valid_seen", "valid_unseen")
    ]
    for identifier in ids:
        game = folder / "json_2.1.1" / identifier
        game.mkdir(parents=True)
        (game / "traj_data.json").write_text("{}", encoding="utf-8")
        (game / "game.tw-pddl").write_text(json.dumps({"solvable": True}), encoding="utf-8")
    (folder / "logic").mkdir()
    (folder / "logic" / "alfred.pddl").write_text("(domain)", encoding="utf-8")
    return ids


def test_real_data_is_counted_and_hashed(tmp_path: Path) -> None:
    ids = data_set(tmp_path / "data")
    row = look(tmp_path, ALFWORLD_DATA=str(tmp_path / "data"))["alfworld data"]
    assert row.present
    for part in ("train 1, ", "valid_seen 1, ", "valid_unseen 1"):
        assert part in row.detail
    listed = "\n".join(sorted(ids)).encode()
    assert f"ids sha256 {hashlib.sha256(listed).hexdigest()[:16]}" in row.detail
    assert f"logic/alfred.pddl sha256 {hashlib.sha256(b'(domain)').hexdigest()[:16]}" in row.detail


def test_data_without_a_split_or_without_the_layout_is_not_found(tmp_path: Path) -> None:
    data_set(tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / "json_2.1.1" / "valid_seen")
    row = look(tmp_path, ALFWORLD_DATA=str(tmp_path / "data"))["alfworld data"]
    assert not row.present
    assert "valid_seen: " in row.detail
    row = look(tmp_path, ALFWORLD_DATA=str(tmp_path))["alfworld data"]
    assert (row.present, row.detail) == (False, f"{tmp_path}: no json_2.1.1/ in it")


def test_generated_games_are_counted(tmp_path: Path) -> None:
    for trial in ("a", "b"):
        folder = tmp_path / "cache/alfworld/digest/json_2.1.1" / "train" / trial
        folder.mkdir(parents=True)
        (folder / "game.tw-pddl").write_bytes(bytes(2**20))
    row = look(tmp_path)["generated games"]
    assert (row.present, row.detail) == (True, f"{tmp_path / 'cache/alfworld'}: 2 games, 2.0 MiB")


class Lookout:
    """A world that looks for one thing, and keeps files beside the generated games."""

    @staticmethod
    def requisites(environ: Mapping[str, str]) -> list[Requisite]:
        return [Requisite(name="levels", present="LEVELS" in environ, detail="a folder of levels", get="make levels")]

    @staticmethod
    def cache_folder(environ: Mapping[str, str]) -> Path:
        return Path(environ["AGENTCLI_CACHE"], "lookout")


def test_every_world_brings_its_own_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(WORLDS, "lookout", f"{__name__}:Lookout")
    monkeypatch.setitem(WORLDS, "broken", "no_such_module:World")
    rows = look(tmp_path)
    assert (rows["levels"].present, rows["levels"].get) == (False, "make levels")
    assert look(tmp_path, LEVELS="1")["levels"].present
    assert not rows["world broken"].present
    assert "no_such_module" in rows["world broken"].detail
    assert rows["alfworld data"].name == "alfworld data"
    assert rows["disk cache"].detail.startswith(f"{tmp_path / 'cache'}: "), "the folder that holds both"


def states(monkeypatch: pytest.MonkeyPatch, python: str, installed: dict[str, str], *requirements: str) -> None:
    """An installed agentcli that states these requirements, among these distributions."""
    about = Message()
    about["Requires-Python"] = python
    about["Provides-Extra"] = "fast"
    for line in requirements:
        about["Requires-Dist"] = line

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "metadata", lambda name: about)
    monkeypatch.setattr(metadata, "version", version)


def test_what_the_core_needs_is_required_and_what_an_extra_adds_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    states(monkeypatch, ">=3.99", {"trl": "1.2"}, "torch>=2.6", "trl>=1.10", 'vllm>=1; extra == "fast"')
    rows = look(tmp_path)
    assert {name for name, row in rows.items() if row.required and not row.present} == {"python", "core"}
    assert rows["core"].detail.split(", ") == ["torch missing", "trl 1.2 is not >=1.10"]
    extra = rows["extra fast"]
    assert (extra.present, extra.required, extra.detail) == (False, False, "vllm missing")
    assert extra.get == "pip install 'agentcli[fast]'"


def test_a_core_package_that_is_too_old_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    states(monkeypatch, ">=3.11", {"torch": "2.6", "trl": "1.2"}, "trl>=1.10", "torch>=2.6")
    row = look(tmp_path)["core"]
    assert (row.present, row.detail) == (False, "trl 1.2 is not >=1.10, torch 2.6")


def test_an_extra_that_is_installed_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    states(
        monkeypatch,
        ">=3.11",
        {"torch": "2.6", "vllm": "1.5"},
        'torch; python_version > "3"',
        'vllm>=1; extra == "fast"',
    )
    rows = look(tmp_path)
    assert (rows["core"].present, rows["core"].detail) == (True, "torch 2.6")
    assert (rows["extra fast"].present, rows["extra fast"].detail) == (True, "vllm 1.5")


def test_without_an_installed_package_nothing_is_known_of_requirements(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "metadata", absent)
    row = look(tmp_path)["packages"]
    assert (row.present, row.required) == (False, True)


def test_torch_that_does_not_import_is_required_and_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    rows = look(tmp_path)
    assert (rows["torch"].present, rows["torch"].required) == (False, True)
    assert "accelerator" not in rows


def test_a_gpu_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU {index}")
    row = look(tmp_path)["accelerator"]
    assert row.present
    assert row.detail.endswith("GPU 0, GPU 1")

    def broken(index: int) -> str:
        raise RuntimeError("no kernel\nmore")

    monkeypatch.setattr(torch.cuda, "get_device_name", broken)
    row = look(tmp_path)["accelerator"]
    assert not row.present
    assert row.detail.startswith("cuda broken: no kernel (")


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = SimpleNamespace(total=100 * 2**30, free=2**29)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    row = look(tmp_path)["disk here"]
    assert (row.present, row.detail) == (False, f"{tmp_path}: 0.5 GiB free of 100.0")


def test_a_report_holds_no_path_of_a_person_and_no_secret(tmp_path: Path) -> None:
    home = tmp_path / "home" / "somebody"
    environ = {
        "PATH": f"{tmp_path / 'acme' / 'secret'}:{program(tmp_path / 'acme' / 'c++', 'echo 12').parent}",
        "HOME": f"{home}/",
        "XDG_CACHE_HOME": f"{home}/.cache/",
        "WEBSHOP_DATA": str(tmp_path / "secret project"),
        "OPENAI_API_KEY": "sk-very-secret",
        "AGENTCLI_WORLD_TOKEN": "very-secret",
    }
    here = tmp_path / "work" / "somebody"
    here.mkdir(parents=True)
    text = issue(examine(environ, here), environ, here)
    for word in ("somebody", "secret", "acme", str(tmp_path)):
        assert word not in text
    assert "compiler (here): $PATH/c++: 12" in text
    assert "disk here (here): .: " in text
    first, empty, fence, *rows, last = text.splitlines()
    assert (first.partition(",")[0], empty, fence, last) == (f"agentcli {__version__}", "", "```text", "```")
    assert [row.partition(" (")[0] for row in rows] == [finding.name for finding in examine(environ, here)]


def test_a_home_that_no_variable_names_is_hidden(tmp_path: Path) -> None:
    cache = Finding(name="x", present=True, detail=str(Path.home() / ".cache"))
    for environ in ({}, {"HOME": f"{Path.home()}/"}):
        assert "x (here): $HOME/.cache" in issue([cache], environ, tmp_path)


def test_a_folder_whose_name_begins_another_s_is_no_part_of_it(tmp_path: Path) -> None:
    found = [Finding(name="x", present=True, detail="/home/ali/a, /home/alice/b, /home/al")]
    assert "x (here): $HOME/a, /home/alice/b, /home/al" in issue(found, {"HOME": "/home/ali"}, tmp_path)


BLOCKED = """
import os
import pathlib
import sys
from agentcli.analysis.doctor import examine
print(*[row.name for row in examine(os.environ, pathlib.Path.cwd())], sep="\\n")
"""


@pytest.mark.parametrize("module", ["torch", "yaml", "numpy", "zstandard"])
def test_every_row_is_there_where_a_package_of_the_core_is_not(module: str) -> None:
    """A world that imports it has a row that says so in the place of its own."""
    blocked = f"import sys; sys.modules[{module!r}] = None\n{BLOCKED}"
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=True)
    names = done.stdout.splitlines()
    assert {"python", "core", "torch", "compiler", "presets", "disk here", "cores", "memory"} <= set(names)
