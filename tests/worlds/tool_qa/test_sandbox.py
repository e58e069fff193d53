"""The sandbox as its users see it: what programs can do, which walls hold, and machines without them."""

import json

import pytest
from agentcli.worlds.tool_qa import sandbox_server as server
from agentcli.worlds.tool_qa.tools.python import PythonTool, Sandbox
from agentcli.worlds.tool_qa.tools.registry import ToolError
from agentcli.worlds.tool_qa.world import ToolQaWorld
from refusal import refused


def test_every_module_that_is_promised_can_be_used() -> None:
    made = Sandbox()
    for name in server.MODULES:
        assert made.run(f"import {name}\n{name}.__name__") == name
    made.close()


@pytest.mark.parametrize(
    ("program", "output"),
    [
        ("1 + 1", "2"),
        ("x = 3\nx ** 2", "9"),
        ("for n in range(3): print(n)", "0\n1\n2"),
        ("print('a'); 'b'", "a\nb"),
        ("def f(n): return n and n + f(n - 1)\nf(9)", "45"),
        ("'zürich'", "zürich"),
        ("raise SystemExit", ""),
        ("None", ""),
    ],
)
def test_programs_print_what_an_interactive_python_would(program: str, output: str) -> None:
    made = Sandbox()
    assert made.run(program) == output
    made.close()


def test_two_servers_print_the_same() -> None:
    program = "import random\nprint({'a', 'b', 'c'}, hash('x'), random.random())"
    outputs = set()
    for _ in range(2):
        made = Sandbox()
        outputs |= {made.run(program), made.run(program)}
        made.close()
    assert len(outputs) == 1


def test_doctor_tells_what_holds() -> None:
    (row,) = ToolQaWorld.requisites({})
    assert row.present
    assert "seccomp" in row.detail


def test_a_machine_without_seccomp_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "supported", lambda: False)
    refused(Sandbox().start, code=4, remedy="Linux")
    with pytest.raises(ToolError):
        PythonTool().run("1 + 1")


def test_the_filter_names_every_call_once_for_each_machine() -> None:
    for column in (0, 1):
        numbers = [row[column] for row in server.ALLOWED.values()]
        assert len(set(numbers)) == len(numbers)


def test_the_tool_turns_failures_into_errors() -> None:
    tool = PythonTool()
    for program, fault in (("1 / 0", "ZeroDivisionError"), ("x = 1", "printed nothing"), ("x" * 3000, "longer")):
        with pytest.raises(ToolError, match=fault):
            tool.run(program)
    assert json.loads(tool.run("import json\njson.dumps([1, 2])")) == [1, 2]
    tool._sandbox.close()
    assert tool.run("2 + 2") == "4", "a closed sandbox starts again"
    tool._sandbox.close()
