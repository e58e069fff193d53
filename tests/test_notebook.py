"""The notebook of examples/ runs from its first cell to its last, on small runs that are made here."""

from pathlib import Path

import nbformat
import pytest
from command_line import chained
from compared_loops import LOOP, SETTINGS
from nbclient import NotebookClient
from processes import as_here

NOTEBOOK = Path(__file__).parents[1] / "examples/look_at_a_run.ipynb"
CHAIN = [
    ("demos", "-c", "toy.yaml", "-o", "demos"),
    ("sft", "demos", "-c", "toy.yaml", "--model", "tiny", "-o", "sft"),
    (*LOOP, "-o", "runs/rl"),
    ("eval", "runs/rl", "-c", "toy.yaml", "--label", "greedy", "--temperature", "0"),
    ("rollout", "-c", "toy.yaml", "--model", "sft/checkpoint", "--method", "spark", "--roots", "2", "-o", "runs/x"),
]


@pytest.mark.slow
def test_the_notebook_runs_on_a_quickstart_of_seconds(tmp_path: Path) -> None:
    folder = chained(tmp_path / "quickstart", SETTINGS, ((*words, "-q") for words in CHAIN))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}})
    client.execute(env=as_here())
    for cell in notebook.cells:
        assert cell.cell_type != "code" or cell.execution_count


def test_the_stored_outputs_show_no_folder_of_a_machine_and_no_fault() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert {output.output_type for output in outputs} <= {"display_data", "execute_result", "stream"}
    assert outputs
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not [place for place in ("/home/", "/tmp/", "/work/", "/root/") if place in text]
