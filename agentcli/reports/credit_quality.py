"""The quality of credit, as tables for terminal and Markdown."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from msgspec import convert
from rich.text import Text

from agentcli.records.credit_quality import (
    CreditQuality,
    Estimate,
    QualityCell,
    Tunnels,
)
from agentcli.records.files import write_atomic
from agentcli.reports.blocks import Blocks
from agentcli.reports.output import print_answer
from agentcli.reports.tables import markdown_page

HEADS = (
    *("method", "steps", "scale", "bias", "variance", "cosine"),
    *("theory: scale, bias", "z"),
)
FIGURES = ("scale", "bias", "variance", "cosine")
EXPLAINED = (
    "steps: environment steps of one group",
    "scale: the part of the mean along the true gradient, 1 for an unbiased estimator",
    "bias: what else is in the mean, divided by the scale: the square of its length, in "
    "squares of the gradient's length",
    "variance: of one group, divided by the scale, in the same unit",
    "cosine: of one update and the true gradient",
    "z: the larger distance of scale and bias from theory, in standard errors",
)


OVER_KNOBS = (
    "cosine of an update of N {equal}: 1 / sqrt(1 + bias + variance * {equal} / N), with "
    "those of one group; p: exact signed-rank test over the seeds' policies"
)


def print_quality(
    quality: CreditQuality, out: Path, *, json: bool, quiet: bool
) -> None:
    """Prints the results and writes OUT/credit-quality.md."""
    write_atomic(out / "credit-quality.md", markdown(quality).encode())
    if quiet and not json:
        print(out / "credit-quality.json")
        return
    print_answer(quality, _shown_parts, json=json)


def _shown_parts(quality: CreditQuality) -> Iterator[Blocks | Text]:
    for title, heads, rows in tables(quality):
        table = Blocks(title, heads[:1], heads[1:])
        for row in rows:
            table.add(row)
        yield table
    yield from map(Text, remarks(quality))


def markdown(quality: CreditQuality) -> str:
    """The tables and remarks as Markdown."""
    return markdown_page(quality.study["title"], tables(quality), remarks(quality))


def tables(
    quality: CreditQuality,
) -> Iterator[tuple[str, Sequence[str], list[list[str]]]]:
    """Title, heads and rows: all tunnels' cosines, each tunnel, and the knobs."""
    by_place: dict[tuple[str, str], list[QualityCell]] = {}
    for cell in quality.cells:
        if cell.unmeasured is None:
            by_place.setdefault((cell.method, cell.tunnel), []).append(cell)
    methods = list(dict.fromkeys(method for method, _ in by_place))
    tunnels = list(quality.study["tunnels"])
    rows = []
    for method in methods:
        cells = [by_place.get((method, tunnel), []) for tunnel in tunnels]
        rows.append([method, *(_shown(_mean(some, "cosine")) for some in cells)])
    if tunnels:
        yield "cosine of an update with the true gradient", ("method", *tunnels), rows
    for tunnel in tunnels:
        about = quality.study["tunnels"][tunnel]["about"]
        rows = []
        for method in methods:
            some = by_place.get((method, tunnel), [])
            if some:
                rows.append([method, *_row(some)])
        success = {}
        for cell in quality.cells:
            if cell.tunnel == tunnel:
                success[cell.seed] = cell.success
        rate = ", ".join(f"{100 * one:.1f}" for one in success.values())
        yield f"{tunnel}: {about}; success {rate} %", HEADS, rows
    for knob in quality.study["knobs"]:
        yield _turned(quality, knob)


def _turned(
    quality: CreditQuality, knob: str
) -> tuple[str, Sequence[str], list[list[str]]]:
    """A knob's table: the first method, and what the others gain over it."""
    study = convert(quality.study, Tunnels)
    choice = study.knobs[knob]
    places = [place for place, _ in choice.settings(knob)]
    gains = {(one.arm, one.panel): one for one in quality.differences}
    own: dict[str, list[float]] = {place: [] for place in places}
    success: dict[str, dict[int, float]] = {place: {} for place in places}
    for cell in quality.cells:
        if cell.tunnel not in success:
            continue
        success[cell.tunnel][cell.seed] = cell.success
        cosine = cell.cosine_at(study.budget, study.equal)
        if cell.method == study.reference and cosine is not None:
            own[cell.tunnel].append(cosine)
    rates = [fmean(success[place].values()) for place in places]
    rows = [["success, %", *(f"{100 * rate:.1f}" for rate in rates)]]
    known = [f"{fmean(own[place]):.3f}" if own[place] else "" for place in places]
    rows.append([study.reference, *known])
    for method in dict.fromkeys(one.arm for one in quality.differences):
        found = [gains.get((method, place)) for place in places]
        shown = [f"{one.gain:+.3f} (p {one.p:.2g})" if one else "" for one in found]
        rows.append([method, *shown])
    title = (
        f"{knob}: {choice.about}; cosine of an update of {study.budget} {study.equal}: "
        f"{study.reference}'s, and what the others add"
    )
    return title, ("method", *map(str, choice.values)), rows


def draw_map(quality: CreditQuality, path: Path) -> None:
    """Draws what each method gains over the first one, for every setting of a knob.

    Raises MissingError without matplotlib.
    """
    from agentcli.reports.plots.figures import map_figure, save

    shown = {(one.arm, one.panel): one.gain for one in quality.differences}
    sure = {(one.arm, one.panel) for one in quality.differences if one.p < 0.01}
    study = convert(quality.study, Tunnels)
    panels = {}
    for name, knob in study.knobs.items():
        places = [place for place, _ in knob.settings(name)]
        panels[name] = dict(zip(map(str, knob.values), places, strict=True))
    unit = f"cosine at {study.budget} {study.equal}, beyond {study.reference}'s"
    save(map_figure(shown, sure, panels, unit), path)


def _row(cells: Sequence[QualityCell]) -> list[str]:
    """The figures of a method in a tunnel: means over the seeds' policies."""
    steps = math.fsum(cell.steps for cell in cells) / len(cells)
    row = [f"{steps:.1f}", *(_shown(_mean(cells, name)) for name in FIGURES)]
    foretold = [cell.foretold for cell in cells if cell.foretold is not None]
    if len(foretold) < len(cells):
        return [*row, "", ""]
    scale = math.fsum(one.scale for one in foretold) / len(cells)
    bias = math.fsum(one.bias for one in foretold) / len(cells)
    z = max(distance(cell) for cell in cells)
    # Updates that are all alike do not say how sure they are.
    shown = f"{z:.1f}" if math.isfinite(z) else ""
    return [*row, f"{scale:.3f}, {bias:.3f} ({foretold[0].source})", shown]


def distance(cell: QualityCell) -> float:
    """The larger distance of scale and bias from theory, in standard errors."""
    if cell.foretold is None or cell.scale is None or cell.bias is None:
        return 0.0
    pairs = ((cell.scale, cell.foretold.scale), (cell.bias, cell.foretold.bias))
    return max(_z(one, expected) for one, expected in pairs)


def _z(one: Estimate, expected: float) -> float:
    gap = abs(one.value - expected)
    # Rounding of the stored figures is no distance.
    if gap <= 1e-5 * max(1.0, abs(expected)):
        return 0.0
    return gap / one.error if one.error else math.inf


def _mean(cells: Sequence[QualityCell], name: str) -> Estimate | None:
    """The mean over seeds, whose errors are independent."""
    every: list[Estimate] = [getattr(cell, name) for cell in cells]
    if not every:
        return None
    value = math.fsum(one.value for one in every) / len(every)
    squares = math.fsum(one.error**2 for one in every)
    return Estimate(value=value, error=math.sqrt(squares) / len(every))


def _shown(one: Estimate | None) -> str:
    if one is None:
        return ""
    digits = 3 if abs(one.value) < 10 else 1
    return f"{one.value:.{digits}f} ± {one.error:.{digits}f}"


def remarks(quality: CreditQuality) -> Iterator[str]:
    """How theory and measurement agree, what was not measured, and what heads mean."""
    compared = [cell for cell in quality.cells if cell.foretold is not None]
    if compared:
        far = max(compared, key=distance)
        within = sum(distance(cell) <= 2 for cell in compared)
        yield (
            f"theory: {within} of {len(compared)} cells within 2 standard errors; the "
            f"farthest is {far.method} in {far.tunnel}, seed {far.seed}, at "
            f"{distance(far):.1f}"
        )
    reasons: dict[tuple[str, str], list[str]] = {}
    for cell in quality.cells:
        if cell.unmeasured is not None:
            places = reasons.setdefault((cell.method, cell.unmeasured), [])
            places.append(cell.tunnel)
    for (method, reason), places in reasons.items():
        yield f"not measured: {method} in {', '.join(dict.fromkeys(places))}: {reason}"
    if quality.study["tunnels"]:
        yield from EXPLAINED
    if quality.differences:
        yield OVER_KNOBS.format(equal=quality.study["equal"])
