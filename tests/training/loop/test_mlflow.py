"""The MLflow tracker, read back from its own files by its own client."""

import json
import os
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec

import pytest
from agentcli.errors import MissingError
from agentcli.records.settings import TrackingSettings
from agentcli.training.loop.trackers import check_trackers

HERE = pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed; pip install 'agentcli[mlflow]'")
SENT = """
import json, socket, sys
from pathlib import Path
from agentcli.records.settings import TrackingSettings
from agentcli.training.metrics import SftMetrics
from agentcli.training.loop.trackers import Sampled, Tracked, open_trackers
asked = []
def refuse(*where, **further):
    asked.append(str(where))
    raise OSError("no network")
socket.socket.connect = socket.getaddrinfo = refuse
folder = Path(sys.argv[1]) / "tracking"
folder.mkdir()
sampled = Sampled({"rollout/success": 0.5}, [("task", "kind", "success", "<b>1</b> go")])
told = Tracked(TrackingSettings(to=["mlflow"], project="test"), "one", folder, "sft", {"learning_rate": 0.1}, sampled)
def train(before, done, until):
    with open_trackers(told, before, done) as send:
        for update in range(done + 1, until):
            numbers = {"loss": before + update, "token_accuracy": 0.5, "grad_norm": 1.0, "learning_rate": 0.1}
            send(SftMetrics(update=update, tokens=7, seconds=1.5, **numbers))
        if until == 3:
            raise KeyboardInterrupt
train(0, 0, 4)
try:
    train(3, 0, 3)
except KeyboardInterrupt:
    pass
from mlflow.tracking import MlflowClient
client = MlflowClient((folder / "mlflow").absolute().as_uri())
(experiment,) = [one for one in client.search_experiments() if one.name == "test"]
def read():
    (run,) = client.search_runs([experiment.experiment_id])
    return run
states = [read().info.status]
train(3, 1, 4)
run = read()
states.append(run.info.status)
points = lambda key: [[one.step, one.value] for one in client.get_metric_history(run.info.run_id, key)]
texts = sorted(path.read_text() for path in (folder / "mlflow").rglob("rollout/samples/*.txt"))
print(json.dumps([run.info.run_name, states, run.data.params, points("sft/loss"), points("rollout/success"), texts, asked]))
"""


@HERE
def test_mlflow_goes_on_with_its_run_and_asks_no_network(tmp_path):
    """Three trainings of one folder: a whole one, one that is stopped after two updates, and its continuation."""
    # Nothing that would keep mlflow quiet, as the variables of a test or of CI do.
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
    line = [sys.executable, "-c", SENT, str(tmp_path)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    name, states, params, losses, successes, texts, asked = json.loads(done.stdout)
    assert (name, states) == ("one", ["FAILED", "FINISHED"])
    assert params == {"learning_rate": "0.1"}
    # The continuation repeats update 5, which is there.
    assert losses == [[step, step] for step in range(1, 7)]
    assert successes == [[1, 0.5], [4, 0.5]]
    assert texts == ["<b>1</b> go"] * 2
    assert asked == []


def test_mlflow_that_is_not_installed_is_named_with_its_package(monkeypatch):
    def missing(name):
        assert name == "mlflow-skinny"
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(MissingError, match=r"mlflow-skinny, .*: pip install 'agentcli\[mlflow\]'"):
        check_trackers(TrackingSettings(to=["mlflow"]))
