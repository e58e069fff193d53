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
from agentcli.records.grouping import grouped
from agentcli.reports.blocks import Blocks
from agentcli.reports.output import print_answer
from agentcli.reports.tables import PlainTable, markdown_page, percent

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


def tables(quality: CreditQuality) -> Iterator[PlainTable]:
    """All tunnels' cosines, each tunnel, and the knobs."""
    measured = [cell for cell in quality.cells if cell.unmeasured is None]
    by_place = grouped(((cell.method, cell.tunnel), cell) for cell in measured)
    methods = dict.fromkeys(method for method, _ in by_place)
    tunnels = quality.study["tunnels"]
    rows = []
    for method in methods:
        places = [by_place.get((method, tunnel), []) for tunnel in tunnels]
        cosines = [_mean(cells, "cosine") for cells in places]
        rows.append([method, *cosines])
    if tunnels:
        yield "cosine of an update with the true gradient", ("method", *tunnels), rows
    for tunnel, settings in tunnels.items():
        rows = []
        for method in methods:
            cells = by_place.get((method, tunnel))
            if cells:
                rows.append([method, *_row(cells)])
        rates = ", ".join(map(percent, _success(quality, tunnel)))
        yield f"{tunnel}: {settings['about']}; success {rates} %", HEADS, rows
    for knob in quality.study["knobs"]:
        yield _turned(quality, knob)


def _success(quality: CreditQuality, tunnel: str) -> list[float]:
    """The success of each seed's policy."""
    by_seed = {}
    for cell in quality.cells:
        if cell.tunnel == tunnel:
            by_seed[cell.seed] = cell.success
    return list(by_seed.values())


def _turned(quality: CreditQuality, knob: str) -> PlainTable:
    """A knob's table: the first method, and what the others gain over it."""
    study = convert(quality.study, Tunnels)
    choice = study.knobs[knob]
    places = [place for place, _ in choice.settings(knob)]
    success = ["success, %"]
    reference = [study.reference]
    for place in places:
        rate = fmean(_success(quality, place))
        success.append(percent(rate))
        cosine = _reference_cosine(quality, study, place)
        reference.append(cosine)
    rows = [success, reference]
    gains = {}
    for one in quality.differences:
        gains[one.arm, one.panel] = f"{one.gain:+.3f} (p {one.p:.2g})"
    for method in dict.fromkeys(method for method, _ in gains):
        shown = [gains.get((method, place), "") for place in places]
        rows.append([method, *shown])
    title = (
        f"{knob}: {choice.about}; cosine of an update of {study.budget} {study.equal}: "
        f"{study.reference}'s, and what the others add"
    )
    return title, ("method", *map(str, choice.values)), rows


def _reference_cosine(quality: CreditQuality, study: Tunnels, place: str) -> str:
    """The mean of the reference over seeds; "" without any."""
    cosines = []
    for cell in quality.cells:
        if cell.tunnel == place and cell.method == study.reference:
            cosine = cell.cosine_at(study.budget, study.equal)
            if cosine is not None:
                cosines.append(cosine)
    if not cosines:
        return ""
    return f"{fmean(cosines):.3f}"


def draw_map(quality: CreditQuality, path: Path) -> None:
    """Draws what each method gains over the first one, for every setting of a knob.

    Raises MissingError without matplotlib.
    """
    from agentcli.reports.plots.figures import map_figure, save

    gains = {}
    sure = set()
    for one in quality.differences:
        place = (one.arm, one.panel)
        gains[place] = one.gain
        if one.p < 0.01:
            sure.add(place)
    study = convert(quality.study, Tunnels)
    panels = {}
    for name, knob in study.knobs.items():
        values = map(str, knob.values)
        places = [place for place, _ in knob.settings(name)]
        panels[name] = dict(zip(values, places, strict=True))
    unit = f"cosine at {study.budget} {study.equal}, beyond {study.reference}'s"
    figure = map_figure(gains, sure, panels, unit)
    save(figure, path)


def _row(cells: Sequence[QualityCell]) -> list[str]:
    """The figures of a method in a tunnel: means over the seeds' policies."""
    steps = fmean(cell.steps for cell in cells)
    row = [f"{steps:.1f}", *(_mean(cells, name) for name in FIGURES)]
    foretold = [cell.foretold for cell in cells if cell.foretold is not None]
    if len(foretold) < len(cells):
        return [*row, "", ""]
    scale = fmean(one.scale for one in foretold)
    bias = fmean(one.bias for one in foretold)
    row.append(f"{scale:.3f}, {bias:.3f} ({foretold[0].source})")
    z = max(map(distance, cells))
    # Updates that are all alike do not say how sure they are.
    row.append(f"{z:.1f}" if math.isfinite(z) else "")
    return row


def distance(cell: QualityCell) -> float:
    """The larger distance of scale and bias from theory, in standard errors."""
    foretold = cell.foretold
    if foretold is None or cell.scale is None or cell.bias is None:
        return 0.0
    of_scale = _z(cell.scale, foretold.scale)
    of_bias = _z(cell.bias, foretold.bias)
    return max(of_scale, of_bias)


def _z(one: Estimate, expected: float) -> float:
    gap = abs(one.value - expected)
    rounding = 1e-5 * max(1.0, abs(expected))
    # Rounding of the stored figures is no distance.
    if gap <= rounding:
        return 0.0
    return gap / one.error if one.error else math.inf


def _mean(cells: Sequence[QualityCell], name: str) -> str:
    """The mean over seeds, whose errors are independent; "" without any."""
    if not cells:
        return ""
    every: list[Estimate] = [getattr(cell, name) for cell in cells]
    value = fmean(one.value for one in every)
    squares = math.fsum(one.error**2 for one in every)
    error = math.sqrt(squares) / len(every)
    digits = 3 if abs(value) < 10 else 1
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def remarks(quality: CreditQuality) -> Iterator[str]:
    """How theory and measurement agree, what was not measured, and what heads mean."""
    compared = [cell for cell in quality.cells if cell.foretold is not None]
    if compared:
        far = max(compared, key=distance)
        distances = map(distance, compared)
        within = sum(z <= 2 for z in distances)
        yield (
            f"theory: {within} of {len(compared)} cells within 2 standard errors; the "
            f"farthest is {far.method} in {far.tunnel}, seed {far.seed}, at "
            f"{distance(far):.1f}"
        )
    lacking = [cell for cell in quality.cells if cell.unmeasured is not None]
    seeds = {cell.seed for cell in quality.cells}
    reasons = grouped(((cell.method, cell.unmeasured), cell) for cell in lacking)
    for (method, reason), cells in reasons.items():
        names = []
        for tunnel, of in grouped(
            (cell.tunnel, str(cell.seed)) for cell in cells
        ).items():
            # Its figures are then means over the other seeds.
            some = f" (seed {', '.join(of)})" if len(of) < len(seeds) else ""
            names.append(f"{tunnel}{some}")
        yield f"not measured: {method} in {', '.join(names)}: {reason}"
    if quality.study["tunnels"]:
        yield from EXPLAINED
    if quality.differences:
        yield OVER_KNOBS.format(equal=quality.study["equal"])
