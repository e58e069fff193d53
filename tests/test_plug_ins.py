"""Plug-ins by name: built in, installed, or named in full; and the hint of an unknown name."""

import sys
from importlib import metadata
from pathlib import Path

import pytest
from agentcli.errors import UsageError
from agentcli.registry import Registry, closest, nearest
from refusal import refused

TABLE = {"join": "posixpath:join", "paths": "posixpath", "relative": "pathlib:Path.relative_to"}


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Three built-in names, and a package that installs `split` and another `join`."""
    info = tmp_path / "more-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: more\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[house.parts]\nsplit = posixpath:split\njoin = posixpath:split\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return Registry("house.parts", TABLE, key="part.name", kind="part")


def test_names_are_the_built_in_and_the_installed_ones(registry: Registry) -> None:
    assert registry.names() == ["join", "paths", "relative", "split"]


def test_things_are_functions_methods_or_modules(registry: Registry) -> None:
    import posixpath

    assert registry.load("join") is posixpath.join, "a built-in name wins over an installed one"
    assert registry.load("split") is posixpath.split
    assert registry.load("paths") is posixpath
    assert registry.load("relative") is Path.relative_to
    assert len(metadata.entry_points(group="house.parts")) == 2


def test_listing_imports_nothing(registry: Registry) -> None:
    table = {"quiet": "wsgiref.validate:validator"}
    assert Registry("none", table, key="k", kind="w").names() == ["quiet"]
    assert "wsgiref.validate" not in sys.modules


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("jion", "part.name: no part 'jion'; did you mean join?"),
        ("zzz", "part.name: no part 'zzz'; there are join, paths, relative, split"),
        ("posixpath:join", "part.name: no part 'posixpath:join'; "),
    ],
)
def test_an_unknown_name_is_a_usage_error(registry: Registry, name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        registry.load(name)
    assert str(caught.value).startswith(message)


def test_a_place_is_a_name_where_that_is_allowed() -> None:
    import posixpath

    registry = Registry("none", TABLE, key="part.name", kind="part", in_full=True)
    assert registry.load("posixpath:split") is posixpath.split
    refused(lambda: registry.load("nowhere_at_all:thing"), names=("part.name", "nowhere_at_all"), remedy="PYTHONPATH=.")
    refused(lambda: registry.load("posixpath:thing"), names="posixpath has no thing")
    refused(lambda: registry.load("posixpath:"), names="posixpath:")


def test_a_place_may_be_in_a_file_and_its_prints_are_no_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("print('loud')\nthing = 7\n", encoding="utf-8")
    registry = Registry("none", TABLE, key="part.name", kind="part", in_full=True)
    assert registry.load(f"{file}:thing") == 7
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "loud\n")
    refused(lambda: registry.load(f"{tmp_path}/other.py:thing"), names="other.py", remedy="folder/file.py:")


def test_nearest_and_closest() -> None:
    assert nearest("sparc", ["carl", "spark"]) == "did you mean spark?"
    assert nearest("zzz", ["carl", "spark"], "it has") == "it has carl, spark"
    assert closest("sparc", iter(["carl", "spark"])) == "spark"
    assert closest("sparc", ["carl", "spark"], 0.99) is None
    assert closest("temp", ["dtype", "temperature"]) == "temperature"
