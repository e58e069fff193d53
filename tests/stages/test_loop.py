"""A loop in the toy world: what it measures, keeps, evaluates and sends to trackers."""

import contextlib
import shutil
from pathlib import Path

import msgspec
import pytest
from agentcli.evaluation.record import EvaluationSummary, LoopMetrics, Rate, figures
from agentcli.evaluation.summary import summarise
from agentcli.records.files import read_json, read_records, sha256_file
from agentcli.records.runs import RunDirectory, point_to
from agentcli.records.settings import Settings
from agentcli.records.types import Episode, Outcome, StageRecord
from agentcli.stages.loop import (
    best_iteration,
    drop_old,
    has_fallen,
    is_rolled_out,
    iteration_folder,
    trained,
)
from agentcli.stages.train import trained_in
from bad_input_runs import START, built
from command_line import Answer, agentcli, succeeded
from compared_loops import made as made_loops
from refusal import refused

LOOP = ("run", "--preset", "./toy.yaml", "--model", START, "--iterations", "3")
EVALUATION = ("--set", "run.evaluate_every=2", "--set", "evaluation.temperature=0")
EVALUATED = (*LOOP, *EVALUATION, "--tracker", "tensorboard", "-o", "loop")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a loop that evaluates its policy after the second and the third iteration, and keeps one."""
    place = tmp_path_factory.mktemp("loops") / "made"
    shutil.copytree(built(tmp_path_factory.getbasetemp()), place, symlinks=True)
    with contextlib.chdir(place):
        answer = ended(*EVALUATED)
        Path("stderr.txt").write_text(answer.stderr, encoding="utf-8")
    return place


@pytest.fixture(autouse=True)
def copy(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of it for every test."""
    shutil.copytree(made, tmp_path / "copy", symlinks=True)
    monkeypatch.chdir(tmp_path / "copy")


def ended(*words: str) -> Answer:
    answer = succeeded(*words)
    return answer


def lines_of(run: str) -> list[LoopMetrics]:
    return list(read_records(Path(run, "metrics.jsonl"), LoopMetrics))


def sent(run: str) -> dict[str, dict[int, float]]:
    """{tag: {step: value}} as TensorBoard shows them; no step may be there twice."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(Path(run, "tracking")))
    events.Reload()
    curves = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    values = {tag: {event.step: event.value for event in curve} for tag, curve in curves.items()}
    assert all(len(values[tag]) == len(curve) for tag, curve in curves.items())
    del values["train/seconds"]
    return values


def weights_of(run: str) -> list[str]:
    return sorted(path.parent.parent.name for path in Path(run).glob("iteration_*/checkpoint/model.safetensors"))


def rollout_of(run: str, iteration: int) -> StageRecord:
    record = RunDirectory(iteration_folder(Path(run), iteration)).finished("rollout")
    assert record is not None
    return record


def results_of(run: str) -> dict[str, str]:
    """sha256 of what must not depend on kills, evaluations or what is kept."""
    names = ("iteration_*/trees.jsonl", "iteration_*/credit/*.jsonl", "checkpoint/model.safetensors")
    files = [path for name in names for path in sorted(Path(run).glob(name))]
    return {str(path.relative_to(run)): sha256_file(path) for path in files}


def test_a_loop_says_how_deep_its_forks_are() -> None:
    words = ("--method", "spark", "--branch", "fixed:1", "--leaves", "4", "--roots", "1", "--iterations", "1")
    answer = ended("run", "--preset", "./toy.yaml", "--model", START, *words, "-o", "forking")
    statistics = rollout_of("forking", 0).statistics
    whole = RunDirectory(Path("forking")).finished("run")
    assert whole is not None
    assert whole.statistics["fork_depth"] == [statistics["fork_depth"]]
    assert f"fork depth {statistics['fork_depth']}" in answer.stderr
    assert "fork_depth" not in RunDirectory(Path("loop")).finished("run").statistics, "chain does not fork"


def test_each_iteration_is_measured_by_kind() -> None:
    lines = lines_of("loop")
    assert [line.iteration for line in lines] == [0, 1, 2]
    for line in lines:
        results = rollout_of("loop", line.iteration).statistics["results"]
        assert line.figures["rollout/success"] == results["success"]["rate"]
        assert line.figures["rollout/length"] == results["steps"]
        assert results["kinds"]
        for kind, of_kind in results["kinds"].items():
            assert line.figures[f"rollout/success/{kind}"] == of_kind["success"]["rate"]


def test_trackers_get_the_figures_at_the_update_that_learned_from_them() -> None:
    lines, curves = lines_of("loop"), sent("loop")
    for name in ("success", "score", "length", "tokens", "repeated", "malformed"):
        measured = {line.updates + 1: line.figures[f"rollout/{name}"] for line in lines}
        assert curves[f"rollout/{name}"] == pytest.approx(measured)
    # An evaluation is of the policy after the updates; no training follows the last one.
    updates = len(curves["train/loss"])
    assert list(curves["eval/success"]) == [lines[2].updates + 1, updates + 1]
    measured = [line.figures["eval/success"] for line in lines[1:]]
    assert list(curves["eval/success"].values()) == pytest.approx(measured)


def test_an_evaluation_in_the_loop_is_what_eval_would_write() -> None:
    assert not Path("loop/iteration_000/evaluation").exists()
    ended("eval", "loop/iteration_002", "-c", "toy.yaml", "--temperature", "0", "-o", "apart")
    for name in ("test.jsonl", "trees/test.jsonl"):
        inside, apart = (Path(run, "evaluation", name) for run in ("loop/iteration_002", "apart"))
        assert inside.read_bytes() == apart.read_bytes()


def test_the_newest_and_the_best_weights_are_kept_and_that_is_said_once() -> None:
    record = RunDirectory(Path("loop")).finished("run")
    assert record is not None
    best = record.statistics["best"]
    assert weights_of("loop") == ["iteration_001", "iteration_002"]
    assert Path("loop/best").resolve() == Path(f"loop/iteration_{best:03d}/checkpoint").resolve()
    assert Path("stderr.txt").read_text(encoding="utf-8").count("run.keep:") == 1


def test_a_loop_ends_after_an_iteration_in_which_nothing_could_be_read() -> None:
    """The policy never saw answers that act in several copies. --resume ends again, until it is told to continue."""
    words = (*LOOP, "--set", "rollout.method=dpepo", "--set", "train.beta=0", "-o", "dpepo")
    commands = (
        "agentcli demos -c toy.yaml --set rollout.method=dpepo -o runs/demos-dpepo",
        "agentcli sft runs/demos runs/demos-dpepo",
    )
    for more in ((), ("--resume",)):
        answer = agentcli(*words, *more, "-q")
        refused(answer, 1, names="dpepo/iteration_000", remedy=commands)
        assert len(list(Path("dpepo").glob("iteration_*"))) == 1
    ended(*words, "--resume", "--set", "run.unreadable=continue")
    assert [line.figures["rollout/malformed"] for line in lines_of("dpepo")] == [1, 1, 1]


@pytest.mark.slow
def test_evaluations_and_what_is_kept_change_nothing_of_the_training() -> None:
    ended(*LOOP, "-o", "plain", "--set", "run.keep=null")
    assert results_of("loop") == results_of("plain")
    assert weights_of("plain") == [f"iteration_00{number}" for number in range(3)]
    assert not Path("plain/best").exists()


def test_a_resumed_loop_sends_nothing_twice_and_loses_nothing() -> None:
    """Killed, as far as files show, in the last training."""
    whole, lines, curves = results_of("loop"), lines_of("loop"), sent("loop")
    last = RunDirectory(Path("loop/iteration_002"))
    for stage in ("train", "evaluation/test"):
        last.forget_stage(stage)
    shutil.rmtree(last.checkpoint)
    shutil.rmtree(last.path / "evaluation")
    RunDirectory(Path("loop")).forget_stage("run")
    ended(*EVALUATED, "--resume")
    assert results_of("loop") == whole
    assert lines_of("loop") == lines
    assert sent("loop") == curves
    assert "nothing is owed" in ended(*EVALUATED, "--resume").stderr


def test_a_loop_goes_on_without_dropped_weights_and_writes_lost_metrics_again() -> None:
    lines = lines_of("loop")
    Path("loop/metrics.jsonl").unlink()
    ended(*[word if word != "3" else "4" for word in EVALUATED], "--resume")
    assert lines_of("loop")[:3] == lines
    assert "iteration_003" in weights_of("loop")


def test_a_loop_goes_on_evaluating_and_with_as_many_iterations() -> None:
    """Otherwise its best weights would be deleted, or its link to the newest would lead nowhere."""
    kept = weights_of("loop")
    refused(agentcli(*LOOP[:-1], "4", "-o", "loop", "--resume"), 2, names=("run.evaluate_every was 2", "now None"))
    shutil.rmtree("loop/iteration_000/checkpoint", ignore_errors=True)
    RunDirectory(Path("loop")).forget_stage("run")
    fewer = [word if word != "3" else "1" for word in EVALUATED]
    refused(agentcli(*fewer, "--resume"), 2, names="loop/iteration_000", remedy="--iterations 3")
    assert set(weights_of("loop")) == set(kept) - {"iteration_000"}
    ended(*fewer, "--overwrite")
    assert weights_of("loop") == ["iteration_000"]


def test_a_loop_shows_its_kinds_and_evaluations() -> None:
    shown = ended("show", "loop").stdout
    for word in ("rollouts by kind", "evaluations in the loop", "iteration_002", "malformed"):
        assert word in shown
    assert "loop/metrics.jsonl: 3 records " in ended("validate", "loop").stderr


def line(iteration: int, success: float | None) -> LoopMetrics:
    measured = {} if success is None else {"eval/success": success}
    return LoopMetrics(iteration=iteration, updates=0, figures=measured)


@pytest.mark.parametrize(
    ("course", "fallen"),
    [
        ([(0.8, 0.7, 0.9), (0.3, 0.2, 0.4)], True),
        ([(0.8, 0.7, 0.9), (0.5, 0.4, 0.6)], False),
        ([(0.8, 0.3, 0.9), (0.3, 0.1, 0.6)], False),
        ([(0.2, 0.1, 0.3), (0.8, 0.7, 0.9)], False),
        ([(0.0, 0.0, 0.1)], False),
    ],
)
def test_success_that_fell_below_half_of_its_best(course: list[tuple[float, float, float]], fallen: bool) -> None:
    """Only where the intervals are apart, too: few leaves go up and down by chance."""
    rates = [Rate(rate=rate, low=low, high=high) for rate, low, high in course]
    assert has_fallen(rates) == fallen


@pytest.mark.slow
def test_a_policy_that_was_ruined_is_remarked_on_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    start = made_loops(tmp_path_factory.getbasetemp()) / "sft/checkpoint"
    sizes = ("--iterations", "4", "--set", "rollout.tasks_per_step=4", "--leaves", "8", "--set", "rollout.method=chain")
    answer = ended(*LOOP[:3], "--model", str(start), *sizes, "--learning-rate", "0.3", "-o", "ruined")
    assert answer.stderr.count("success fell below half") == 1


def test_the_first_of_the_best_is_best() -> None:
    assert best_iteration([line(0, None), line(1, None)]) is None
    assert best_iteration([line(0, 0.5), line(1, None), line(2, 0.7), line(3, 0.7)]) == 2


@pytest.mark.parametrize(
    ("keep", "best", "left"), [(1, None, [3]), (2, 0, [0, 2, 3]), (4, None, [0, 1, 2, 3]), (9, None, [0, 1, 2, 3])]
)
def test_the_newest_and_the_best_weights_stay(tmp_path: Path, keep: int, best: int | None, left: list[int]) -> None:
    for iteration in range(4):
        run = RunDirectory(iteration_folder(tmp_path, iteration))
        run.checkpoint.mkdir(parents=True)
        run.optimizer.touch()
        run.trees.touch()
    assert drop_old(tmp_path, 3, keep, best) == (len(left) < 4)
    runs = [RunDirectory(iteration_folder(tmp_path, iteration)) for iteration in range(4)]
    assert [number for number, run in enumerate(runs) if run.checkpoint.exists()] == left
    assert [number for number, run in enumerate(runs) if run.optimizer.exists()] == left
    assert all(run.trees.exists() for run in runs)
    assert not drop_old(tmp_path, 3, keep, best)


def test_figures_are_those_of_the_episodes() -> None:
    summary = read_json(Path("runs/x/evaluation/test.json"), EvaluationSummary)
    rows = list(read_records(Path("runs/x/evaluation/test.jsonl"), Episode))
    assert figures(summary, "eval") == figures(summarise(rows), "eval")
    assert figures(summary, "eval")["eval/length"] == sum(row.steps for row in rows) / len(rows)


def test_a_loops_own_checkpoint_goes_on_with_what_its_iteration_trained(tmp_path: Path) -> None:
    """Optimiser and critic lie beside the weights, not beside the link to them."""
    folder = tmp_path / "rl/iteration_003"
    (folder / "checkpoint").mkdir(parents=True)
    point_to(tmp_path / "rl/checkpoint", Path("iteration_003/checkpoint"))
    assert trained_in(str(tmp_path / "rl/checkpoint")).path == folder
    assert trained_in(str(folder / "checkpoint")).path == folder
    assert trained_in("org/model").path == Path("org")


def test_a_loop_whose_model_was_not_typed_goes_on_with_it() -> None:
    words = ("run", "--preset", "./toy.yaml", "-o", "untyped")
    ended(*words)
    record = RunDirectory(Path("untyped")).finished("run")
    assert record is not None
    assert record.settings["policy"]["model"] is not None
    ended("run", "--iterations", "2", "-o", "untyped", "--resume", "--preset", "./toy.yaml")
    assert len(lines_of("untyped")) == 2


OUT_OF_ORDER = """
from pathlib import Path
from toy_world import ToyEngine, ToyWorld

class Engine(ToyEngine):
    def start(self, task):
        if Path(f"out-of-order-{task.split}").exists():
            raise RuntimeError("not now")
        return super().start(task)

class OutOfOrder(ToyWorld):
    def engine(self):
        return Engine(self)
"""


def test_a_loop_with_too_many_errored_leaves_samples_them_again_on_resume() -> None:
    Path("world.py").write_text(OUT_OF_ORDER, encoding="utf-8")
    Path("out-of-order-train").touch()
    words = (*LOOP[:5], "--iterations", "1", "--env", "./world.py:OutOfOrder", "-o", "broken")
    failed = agentcli(*words)
    assert failed.code == 1, failed
    assert "4 of 4 leaves errored" in failed.stderr
    assert rollout_of("broken", 0).counts["errored"] == 4
    Path("out-of-order-train").unlink()
    ended(*words, "--resume")
    assert rollout_of("broken", 0).counts["errored"] == 0


def test_a_loop_plays_an_evaluation_with_too_many_errors_again_on_resume() -> None:
    Path("world.py").write_text(OUT_OF_ORDER, encoding="utf-8")
    Path("out-of-order-test").touch()
    words = (*LOOP[:5], "--iterations", "1", "--env", "./world.py:OutOfOrder", *EVALUATION, "-o", "unfit")
    failed = agentcli(*words)
    assert (failed.code, "leaves errored" in failed.stderr) == (1, True), failed
    Path("out-of-order-test").unlink()
    ended(*words, "--resume")
    summary = read_json(Path("unfit/iteration_000/evaluation/test.json"), EvaluationSummary)
    assert summary.outcomes[Outcome.ERRORED] == 0
    assert lines_of("unfit")[0].figures["eval/success"] == summary.success.rate


def test_trees_that_training_has_begun_on_are_not_sampled_again(tmp_path: Path) -> None:
    """A resume may allow fewer errors than the one before, which had accepted them."""
    run = RunDirectory(tmp_path)
    rollout = rollout_of("loop", 0)
    counts = {**rollout.counts, "errored": rollout.counts["leaves"]}
    run.record_stage("rollout", msgspec.structs.replace(rollout, counts=counts))
    run.trees.touch()
    assert not is_rolled_out(run, Settings())
    run.begun("train").parent.mkdir()
    run.begun("train").touch()
    assert is_rolled_out(run, Settings())


def test_a_resumed_loop_keeps_its_evaluations() -> None:
    more = ("--resume", "--iterations", "4")
    for change in ("evaluation.temperature=1", "evaluation.samples=2", "evaluation.label=quick"):
        name = change.partition("=")[0]
        refused(agentcli(*LOOP, *EVALUATION, "--tracker", "tensorboard", "-o", "loop", *more, "--set", change), 2, name)
    # What says the same in other words, and what is of other commands, may change.
    same = ("evaluation.label=test", "evaluation.branching=3", "evaluation.trees=none")
    ended(*EVALUATED, *more, *(word for change in same for word in ("--set", change)))
    assert "eval/success" in lines_of("loop")[3].figures


def test_a_loop_that_had_no_evaluations_may_begin_to_evaluate() -> None:
    words = (*LOOP[:5], "--iterations", "1", "-o", "plain")
    ended(*words)
    ended(*words, "--resume", *EVALUATION)
    assert "eval/success" in lines_of("plain")[0].figures


def test_what_chooses_the_tasks_of_training_does_not_choose_those_of_evaluations() -> None:
    words = (*LOOP[:5], "--iterations", "1", *EVALUATION, "--where", "split=train", "-o", "where")
    ended(*words)
    assert "eval/success" in lines_of("where")[0].figures


def test_many_iterations_are_looked_through_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of all but the last are deleted. A recursion would end at a thousand."""
    asked = 0

    def finished(run: RunDirectory, stage: str) -> str:
        nonlocal asked
        asked += 1
        return stage

    monkeypatch.setattr(RunDirectory, "finished", finished)
    for iteration in range(1500):
        iteration_folder(tmp_path, iteration).mkdir()
    RunDirectory(iteration_folder(tmp_path, 1400)).checkpoint.mkdir()
    assert trained(tmp_path, 10) == [True] * 1401 + [False] * 99
    assert asked <= 1500
