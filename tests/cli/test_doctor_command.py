"""agentcli doctor as a user meets it: rows on stdout, and exit code 4 only for what the core needs."""

import json
from typing import Any

import pytest
from agentcli.analysis import doctor
from agentcli.analysis.doctor import Finding
from agentcli.cli.app import build
from typer.testing import CliRunner

JAVA = Finding(name="java", present=False, detail="no java on PATH", get="pip install 'agentcli[java]'")
CORE = Finding(name="core", present=False, required=True, detail="trl missing", get="pip install agentcli")


def run(monkeypatch: pytest.MonkeyPatch, findings: list[Finding], *words: str) -> Any:
    monkeypatch.setattr(doctor, "examine", lambda environ, here: findings)
    return CliRunner().invoke(build(), ["doctor", *words])


def test_missing_options_are_no_failure_and_the_table_shows_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, [JAVA])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "pip install 'agentcli[java]'" in result.stdout


def test_findings_stand_in_groups_and_the_last_line_is_what_to_do_next(monkeypatch: pytest.MonkeyPatch) -> None:
    here = [Finding(name=name, present=True, detail="1.0") for name in ("torch", "extra one", "extra two")]
    printed = run(monkeypatch, [*here, JAVA]).stdout
    works, optional = printed.split("optional")
    assert "torch" in works
    assert "one, two" in works
    assert "java" in optional
    assert "missing" not in printed
    assert "True" not in printed
    last = printed.splitlines()[-1]
    assert last.startswith("next: ")
    assert last.endswith("agentcli sft")
    assert "missing" in run(monkeypatch, [CORE]).stdout


def test_json_is_one_row_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [json.loads(line) for line in run(monkeypatch, [JAVA, CORE], "--json").stdout.splitlines()]
    assert [row["name"] for row in rows] == ["java", "core"]
    assert rows[0] == {
        "name": "java",
        "present": False,
        "required": False,
        "detail": "no java on PATH",
        "get": "pip install 'agentcli[java]'",
    }


def test_what_the_core_lacks_ends_with_code_4_after_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, [JAVA, CORE], "--json")
    assert result.exit_code == 4
    assert result.stderr == "error: core: trl missing; type: pip install agentcli\n"
    assert len(result.stdout.splitlines()) == 2


def test_a_report_is_printed_whole_before_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, [JAVA, CORE], "--issue")
    assert result.exit_code == 4
    assert "java (not here): no java on PATH\ncore (not here): trl missing\n```" in result.stdout
    assert result.stderr == "error: core: trl missing; type: pip install agentcli\n"


def test_two_forms_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, [JAVA], "--issue", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--issue" in result.stderr


@pytest.mark.slow
def test_this_machine_can_run_the_core() -> None:
    result = CliRunner().invoke(build(), ["doctor", "--json"])
    assert result.exit_code == 0, result.output
    present = {row["name"]: row["present"] for row in map(json.loads, result.stdout.splitlines())}
    assert present["python"]
    assert present["torch"]
    assert present["presets"]


def test_help_ends_with_an_example() -> None:
    assert "Example: agentcli doctor" in CliRunner().invoke(build(), ["doctor", "--help"]).stdout
