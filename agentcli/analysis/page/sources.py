"""The files of trees that a page shows, and the names that it shows them by."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from agentcli.analysis.page.texts import visible
from agentcli.errors import UsageError
from agentcli.evaluation.record import EvaluationSummary
from agentcli.records.files import read_json
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.reports.show.runs import is_run, model_of


class TreeSource(msgspec.Struct, kw_only=True, frozen=True):
    """One file of trees."""

    name: str
    """As the page shows it: rl/iteration_005, rl/evaluation/greedy."""
    run: Path
    trees: Path
    evaluation: str | None = None
    """The label of the evaluation that kept the trees."""

    @property
    def model(self) -> str | None:
        """The model that they were sampled from, as the manifest names it."""
        if self.evaluation is not None:
            file = RunDirectory(self.run).evaluation(self.evaluation)
            summary = file.with_suffix(".json")
            # Trees lie there before their evaluation has ended.
            if not is_there(summary):
                return None
            return read_json(summary, EvaluationSummary).model
        rollout = RunDirectory(self.run).finished("rollout")
        return None if rollout is None else model_of(rollout)


def short_names(places: Sequence[Path]) -> dict[Path, str]:
    """A name for every run: the end of its path, as long as it must be to be unlike.

    Raises UsageError for a run that is named twice.
    """
    whole = {place: place.resolve().parts for place in places}
    if len(set(whole.values())) < len(places):
        raise UsageError(f"a run is named twice among {', '.join(map(str, places))}")
    lengths = dict.fromkeys(places, 1)
    while True:
        names = {place: "/".join(whole[place][-lengths[place] :]) for place in places}
        counts = Counter(names.values())
        alike = [place for place in places if counts[names[place]] > 1]
        if not alike:
            return {place: visible(name) for place, name in names.items()}
        for place in alike:
            lengths[place] += 1


def sources_of(place: Path, name: str) -> Iterator[TreeSource]:
    """The trees of a run: its own, those of its iterations, and of its evaluations."""
    yield from _held(place, name)
    for folder in loop_folders(place):
        yield from _held(folder, f"{name}/{folder.name}")


def _held(run: Path, name: str) -> Iterator[TreeSource]:
    directory = RunDirectory(run)
    if is_there(directory.trees):
        yield TreeSource(name=name, run=run, trees=directory.trees)
    for file in sorted((run / "evaluation/trees").glob("*.jsonl")):
        label = file.stem
        yield TreeSource(
            name=f"{name}/evaluation/{visible(label)}",
            run=run,
            trees=file,
            evaluation=label,
        )


def refuse_others(places: Sequence[Path]) -> None:
    """Raises UsageError for a folder that is not a run."""
    for place in places:
        if not (is_run(place) or any(sources_of(place, place.name))):
            raise UsageError(
                f"{place}: is not a run; `agentcli show` lists those that there are"
            )
