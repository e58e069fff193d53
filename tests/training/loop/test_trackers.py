"""Trackers get the figures of metrics.jsonl, read back from what they wrote; and nothing else happens."""

import json
import os
import struct
import subprocess
import sys
from functools import partial
from importlib import metadata

import msgspec
import pytest
from agentcli.records.files import read_records
from agentcli.records.settings import TrackingSettings
from agentcli.records.training_settings import SftSettings, TrainSettings
from agentcli.training.imitation import ImitationTraining
from agentcli.training.loop.job import Job
from agentcli.training.loop.trackers import Sampled, Tracked, check_trackers, open_trackers
from agentcli.training.metrics import SftMetrics, TrainMetrics
from agentcli.training.policy_gradient.training import PolicyTraining
from refusal import refused
from stopping import SFT, TRAIN, Stopped, stop_after
from tiny_rollout import words


@pytest.fixture
def wandb_alone(tmp_path, monkeypatch):
    """W&B as on a machine where nobody has used it; it reads the environment once, so it forgets before and after."""
    import wandb

    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "NETRC"):
        monkeypatch.setenv(name, str(tmp_path / "of wandb" / name))
    wandb.teardown()
    yield
    wandb.teardown()


BLOCK, FULL, LAST = 2**15, 1, 4
SAMPLED = Sampled({"rollout/success": 0.25}, [("one", "kind", "success", "<script>x</script>\n# 1 go")])


def call(rollout, folder, to, stop=None, model=None, optimizer_in=None, tracking_dir=None, sampled=None):
    job = Job(
        str(model or rollout.model),
        folder / "checkpoint",
        TrainSettings(**TRAIN),
        0,
        folder / "metrics.jsonl",
        optimizer_in=optimizer_in,
        optimizer_out=folder / "optimizer.safetensors",
        progress=stop_after(stop),
        snapshot=folder / "snapshot",
        tracked=Tracked(
            TrackingSettings(to=to, project="agentcli-test"),
            "one",
            tracking_dir or folder / "tracking",
            "train",
            msgspec.to_builtins(TrainSettings(**TRAIN)),
            sampled or Sampled(),
        ),
    )
    return PolicyTraining(job).train(rollout.trees, rollout.credit)


def events(folder):
    """{tag: {step: value}} of all event files of a folder, as TensorBoard shows them; no step may be there twice."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    curves = {tag: read.Scalars(tag) for tag in read.Tags()["scalars"]}
    found = {tag: {event.step: event.value for event in curve} for tag, curve in curves.items()}
    assert all(len(found[tag]) == len(curve) for tag, curve in curves.items())
    return found


def fields(metrics, kind, name):
    return {line.update: getattr(line, name) for line in read_records(metrics, kind)}


def test_tensorboard_of_a_loop_is_one_curve(rollout, tmp_path):
    """Two iterations into one folder, the second stopped and continued: updates 1 to 16, each once."""
    first, second, shared = tmp_path / "first", tmp_path / "second", tmp_path / "tracking"
    call(rollout, first, ["tensorboard"], tracking_dir=shared)
    given = {"model": first / "checkpoint", "optimizer_in": first / "optimizer.safetensors", "tracking_dir": shared}
    with pytest.raises(Stopped):
        call(rollout, second, ["tensorboard"], stop=5, **given)
    call(rollout, second, ["tensorboard"], **given)
    found = events(shared)
    assert set(found) == {f"train/{name}" for name in TrainMetrics.__struct_fields__} - {
        "train/update",
        "train/schema_version",
    }
    for name in ("loss", "gap_mean", "gap_k3", "kl", "entropy", "clip_fraction", "grad_norm", "skipped_share"):
        expected = fields(first / "metrics.jsonl", TrainMetrics, name)
        expected |= {8 + step: value for step, value in fields(second / "metrics.jsonl", TrainMetrics, name).items()}
        assert sorted(expected) == list(range(1, 17))
        assert found[f"train/{name}"] == pytest.approx(expected, rel=1e-6)


def test_trainings_of_one_second_are_read_in_their_order(tmp_path, monkeypatch):
    """The tenth event file of a process sorts before its ninth where both are of one second."""
    from tensorboard.summary.writer import event_file_writer

    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(9))
    tracking = TrackingSettings(to=["tensorboard"])
    for before in (0, 1):
        sampled = Sampled({"rollout/success": before / 4})
        with open_trackers(Tracked(tracking, "one", tmp_path, "train", {}, sampled), before, 0):
            pass
    assert events(tmp_path)["rollout/success"] == {1: 0.0, 2: 0.25}


@pytest.mark.slow
def test_what_was_sampled_stands_at_the_first_update_once(rollout, tmp_path):
    """Stopped before a snapshot and after one; the text is a block of code, which nothing in it can leave."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for stop in (2, 5):
        with pytest.raises(Stopped):
            call(rollout, tmp_path, ["tensorboard"], stop=stop, sampled=SAMPLED)
    call(rollout, tmp_path, ["tensorboard"], sampled=SAMPLED)
    assert events(tmp_path / "tracking")["rollout/success"] == {1: 0.25}
    read = EventAccumulator(str(tmp_path / "tracking"))
    read.Reload()
    (text,) = read.Tensors("rollout/samples/1/text_summary")
    assert text.step == 1
    assert text.tensor_proto.string_val[0] == b"    <script>x</script>\n    # 1 go"


def test_a_training_without_an_update_sends_what_was_sampled(tmp_path):
    tracking = TrackingSettings(to=["tensorboard"])
    tracked = Tracked(tracking, "one", tmp_path, "train", {}, SAMPLED)
    with open_trackers(tracked, before=7, done=0):
        pass
    assert events(tmp_path) == {"rollout/success": {8: 0.25}}


def test_sft_is_tracked_too(rollout, tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    tracked = Tracked(TrackingSettings(to=["tensorboard"]), "one", tmp_path / "tracking", "sft", {})
    job = Job("tiny", tmp_path / "out", SftSettings(**SFT), 0, metrics, tracked=tracked)
    ImitationTraining(job, [], words).train([rollout.trees])
    found = events(tmp_path / "tracking")
    assert found["sft/loss"] == pytest.approx(fields(metrics, SftMetrics, "loss"), rel=1e-6)


def kept_by_wandb(file):
    """The records of a .wandb file, which is a log of LevelDB (its log_format.md) after seven bytes.

    wandb's own reader is not in all of its releases.
    """
    data, whole = file.read_bytes(), b""
    place = 7
    while place + 7 <= len(data):
        if BLOCK - place % BLOCK < 7:
            # Too little for a header: padding up to the next block.
            place += BLOCK - place % BLOCK
            continue
        size, kind = struct.unpack("<xxxxHB", data[place : place + 7])
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (FULL, LAST):
            yield whole
            whole = b""


@pytest.mark.usefixtures("wandb_alone")
def test_wandb_keeps_figures_and_settings_and_nothing_else(rollout, tmp_path, monkeypatch, capfd):
    """Offline. What would upload a model or watch gradients through transformers' callback is switched on, and ignored."""
    from wandb.proto import wandb_internal_pb2

    for name, value in {
        "WANDB_MODE": "offline",
        "WANDB_LOG_MODEL": "end",
        "WANDB_WATCH": "all",
        "WANDB_SILENT": "true",
    }.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "run"
    with pytest.raises(Stopped):
        call(rollout, folder, ["wandb"], stop=5, sampled=SAMPLED)
    call(rollout, folder, ["wandb"], sampled=SAMPLED)
    files = sorted((folder / "tracking").rglob("*.wandb"))
    assert len(files) == 2
    history, runs, kinds = {}, set(), set()
    for file in files:
        for data in kept_by_wandb(file):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            kind = record.WhichOneof("record_type")
            kinds.add(kind)
            if kind == "run":
                runs.add((record.run.project, record.run.display_name, record.run.run_id))
            elif kind == "history":
                row = {(i.key or "/".join(i.nested_key)): json.loads(i.value_json) for i in record.history.item}
                history[row["_step"]] = row
    assert kinds <= {"header", "run", "telemetry", "history", "summary", "exit", "files"}
    assert capfd.readouterr().err == ""
    assert len(runs) == 1
    assert next(iter(runs))[:2] == ("agentcli-test", "one")
    loss = fields(folder / "metrics.jsonl", TrainMetrics, "loss")
    assert {step: row["train/loss"] for step, row in history.items() if "train/loss" in row} == pytest.approx(loss)
    assert not any("gradients" in key or "parameters" in key for row in history.values() for key in row)
    assert {step: row["rollout/success"] for step, row in history.items() if "rollout/success" in row} == {1: 0.25}
    pages = [path for file in files for path in file.parent.joinpath("files").rglob("*") if path.is_file()]
    assert [page.read_text() for page in pages] == ["<pre>&lt;script&gt;x&lt;/script&gt;\n# 1 go</pre>"]


TRACKIO = """
import json, sys
from pathlib import Path
from agentcli.records.settings import TrackingSettings
from agentcli.training.metrics import SftMetrics
from agentcli.training.loop.trackers import Sampled, Tracked, open_trackers
sampled = Sampled({"rollout/success": 0.5}, [("task", "kind", "success", "<b>1</b> go")])
told = Tracked(TrackingSettings(to=["trackio"], project="test"), "one", Path(sys.argv[1]), "sft", {"learning_rate": 0.1}, sampled)
for before, done in ((0, 0), (3, 1), (3, 1), (3, 0)):
    with open_trackers(told, before, done) as send:
        for update in range(done + 1, 4):
            numbers = {"loss": before + update, "token_accuracy": 0.5, "grad_norm": 1.0, "learning_rate": 0.1}
            send(SftMetrics(update=update, tokens=7, seconds=1.5, **numbers))
from trackio.sqlite_storage import SQLiteStorage
rows = SQLiteStorage.get_logs("test", "one")
losses = [[row["step"], row["sft/loss"]] for row in rows]
trees = [row for row in rows if "rollout/success" in row]
texts = [[row["step"], row["rollout/success"], row["rollout/samples"]["_value"][0]["trajectory"]] for row in trees]
print(json.dumps([SQLiteStorage.get_runs("test"), losses, texts]))
"""


def test_trackio_goes_on_with_its_run(tmp_path):
    """In a process of its own: trackio reads the place of its store when it is imported, and TRL imports it."""
    environment = {**os.environ, "TRACKIO_DIR": str(tmp_path / "store")}
    line = [sys.executable, "-c", TRACKIO, str(tmp_path)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    runs, losses, trees = json.loads(done.stdout)
    assert runs == ["one"]
    # A training that is made again sends no step that is there.
    assert losses == [[1, 1], [2, 2], [3, 3], [5, 5], [6, 6]]
    assert trees == [[1, 0.5, "    <b>1</b> go"]]


def test_a_tracker_that_is_not_installed_is_named(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    refused(
        lambda: check_trackers(TrackingSettings(to=["wandb"])),
        4,
        names=("tracking.to", "wandb"),
        remedy="pip install 'agentcli[trackers]'",
    )


@pytest.mark.usefixtures("wandb_alone")
def test_wandb_without_a_key_is_refused():
    refused(
        lambda: check_trackers(TrackingSettings(to=["tensorboard", "wandb"])),
        4,
        names=("tracking.to", "wandb"),
        remedy=("wandb login", "export WANDB_MODE=offline"),
    )


@pytest.mark.usefixtures("wandb_alone")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WANDB_MODE", "offline"),
        ("WANDB_MODE", "disabled"),
        ("WANDB_API_KEY", "k" * 40),
        ("WANDB_IDENTITY_TOKEN_FILE", "token"),
        ("NETRC", "netrc"),
    ],
)
def test_wandb_may_start_offline_and_with_a_key(empty_folder, monkeypatch, name, value):
    (empty_folder / "netrc").write_text(f"machine api.wandb.ai login user password {'k' * 40}\n")
    (empty_folder / "netrc").chmod(0o600)
    monkeypatch.setenv(name, value)
    check_trackers(TrackingSettings(to=["wandb"]), empty_folder / "run" / "tracking")
    assert not (empty_folder / "run").exists()


@pytest.mark.parametrize("tracker", ["tensorboard", "wandb", "trackio"])
@pytest.mark.usefixtures("wandb_alone")
def test_a_place_where_nothing_can_be_written_is_refused(tmp_path, monkeypatch, tracker):
    monkeypatch.setenv("WANDB_MODE", "offline")
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", tmp_path / "file" / "tracking"):
        names = ("tracking.to", tracker, str(folder), str(tmp_path / "file"))
        refused(partial(check_trackers, TrackingSettings(to=[tracker]), folder), names=names)
    locked = tmp_path / "locked"
    locked.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path != locked)  # root may write anywhere
    refused(
        lambda: check_trackers(TrackingSettings(to=[tracker]), locked / "tracking"),
        names="locked/tracking",
        remedy="-o DIR",
    )
    assert list(locked.iterdir()) == []


def test_the_store_of_trackio_is_looked_at(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.setattr("trackio.utils.TRACKIO_DIR", tmp_path / "file" / "store")
    refused(
        lambda: check_trackers(TrackingSettings(to=["trackio"])),
        names=("tracking.to", "trackio", "/store"),
        remedy="export TRACKIO_DIR=DIR",
    )


def test_a_tracker_that_does_not_open_is_one_line(rollout, tmp_path):
    (tmp_path / "tracking").write_text("a file")
    refused(lambda: call(rollout, tmp_path, ["tensorboard"]), 1, ("tracking.to", "tensorboard"))


def test_no_tracker_is_imported_or_opened_unless_asked_for(rollout, tmp_path):
    """TRL imports wandb where it is installed; it must not be more than imported."""
    code = "import sys, agentcli.training.loop.trackers; print([n for n in names if n in sys.modules])"
    names = "names = ['tensorboard', 'wandb', 'trackio']; "
    done = subprocess.run([sys.executable, "-c", names + code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    job = Job("tiny", tmp_path / "out", SftSettings(**SFT), 0, tmp_path / "metrics.jsonl")
    ImitationTraining(job, [], words).train([rollout.trees])
    assert sys.modules["wandb"].run is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "out"]
