"""Figures show the numbers they were given, and one input gives one file."""

import math
from pathlib import Path

import numpy as np
import pytest
from agentcli.evaluation.record import Rate
from agentcli.reports.plots.figures import (
    Course,
    check_suffix,
    evaluations_figure,
    kinds_figure,
    pass_at_k_figure,
    plain,
    save,
    training_figure,
)
from hypothesis import given
from hypothesis import strategies as st
from refusal import refused

TWO = [Course(steps=[10, 10, 10], values=[0.0, 50.0, 100.0]), Course(steps=[30, 10, 10], values=[50.0, 50.0, 50.0])]


def test_a_line_is_the_mean_over_seeds_at_the_mean_steps() -> None:
    (line,) = training_figure({"grpo": TWO}, window=1).axes[0].lines
    np.testing.assert_allclose(line.get_xdata(), [20, 30, 40])
    np.testing.assert_allclose(line.get_ydata(), [25, 50, 75])


def test_a_window_is_a_trailing_mean() -> None:
    (line,) = training_figure({"grpo": TWO[:1]}, window=2).axes[0].lines
    np.testing.assert_allclose(line.get_xdata(), [20, 30])
    np.testing.assert_allclose(line.get_ydata(), [25, 75])


def test_the_band_is_one_standard_error() -> None:
    axes = training_figure({"grpo": TWO}, window=1).axes[0]
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    # Two values that differ by d have a standard error of d / 2.
    assert heights.min() == pytest.approx(25 - 25)
    assert heights.max() == pytest.approx(75 + 25)


def test_one_seed_has_no_band() -> None:
    assert not training_figure({"grpo": TWO[:1]}, window=1).axes[0].collections


@given(st.lists(st.floats(0, 100), min_size=1, max_size=9), st.integers(1, 12))
def test_any_length_has_a_line_within_its_values(values: list[float], window: int) -> None:
    course = Course(steps=[5] * len(values), values=values)
    (line,) = training_figure({"x": [course]}, window=window).axes[0].lines
    drawn = line.get_ydata()
    assert len(drawn) == len(values) - min(window, len(values)) + 1
    assert min(drawn) >= min(values) - 1e-9
    assert max(drawn) <= max(values) + 1e-9


def test_what_is_measured_stands_at_the_axis() -> None:
    figure = training_figure({"grpo": TWO}, window=1, unit="entropy, nats")
    assert figure.axes[0].get_ylabel() == "entropy, nats"


def test_each_kind_has_its_panel_and_a_name_one_colour() -> None:
    kinds = {"clean": {"grpo": TWO}, "look": {"gigpo": TWO[:1], "grpo": TWO}}
    clean, look = kinds_figure(kinds, window=1).axes
    assert [clean.get_title(), look.get_title()] == ["clean", "look"]
    assert len(look.lines) == 2
    assert clean.lines[0].get_color() == look.lines[1].get_color()


def test_a_kind_that_was_not_sampled_leaves_a_gap() -> None:
    course = Course(steps=[10, 10, 10], values=[math.nan, 50.0, 100.0])
    (line,) = kinds_figure({"clean": {"grpo": [course]}}, window=1).axes[0].lines
    np.testing.assert_allclose(line.get_ydata(), [math.nan, 50, 100])
    (line,) = kinds_figure({"clean": {"grpo": [course]}}, window=2).axes[0].lines
    np.testing.assert_allclose(line.get_ydata(), [50, 75])


def test_a_run_without_a_label_leaves_its_row_empty() -> None:
    rate = Rate(rate=0.5, low=0.4, high=0.7)
    figure = evaluations_figure({"L0": {"a": rate, "b": rate}, "L1": {"b": rate}})
    first, second = figure.axes
    assert [len(axes.containers) for axes in (first, second)] == [2, 1]
    assert [label.get_text() for label in first.get_yticklabels()] == ["a", "b"]


def test_many_labels_stand_in_several_rows() -> None:
    rate = Rate(rate=0.5, low=0.4, high=0.7)
    figure = evaluations_figure({f"L{number}": {"a": rate} for number in range(7)}, "points")
    assert [axes.get_title() for axes in figure.axes] == [f"L{number}" for number in range(7)]
    assert len({round(axes.get_subplotspec().rowspan.start) for axes in figure.axes}) == 3
    assert figure.get_supxlabel() == "points"


def test_pass_at_k_is_drawn_over_k() -> None:
    chances = {"1": Rate(rate=0.25, low=0.2, high=0.3), "4": Rate(rate=0.5, low=0.4, high=0.6)}
    (line,) = pass_at_k_figure({"a": chances}).axes[0].lines
    assert list(line.get_xdata()) == [1, 4]
    assert list(line.get_ydata()) == [25, 50]


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_one_input_gives_one_file(tmp_path: Path, suffix: str) -> None:
    files = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for file in files:
        save(training_figure({"grpo": TWO}, window=1), file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_file_that_is_no_picture_is_refused() -> None:
    refused(lambda: check_suffix(Path("x.txt")), names="x.txt", remedy="x.svg")


def test_a_single_point_is_drawn() -> None:
    course = Course(steps=[5, 5], values=[20.0, 40.0])
    (line,) = training_figure({"x": [course]}, window=5).axes[0].lines
    assert line.get_marker() == "o"


@pytest.mark.parametrize("name", ["cost$_{$", "_hidden", "\x1b[31mred"])
def test_any_name_is_shown_as_it_is(tmp_path: Path, name: str) -> None:
    rate = Rate(rate=0.5, low=0.6, high=0.4)
    for place, figure in enumerate(
        (
            training_figure({name: TWO}, window=1),
            evaluations_figure({name: {name: rate}}),
            pass_at_k_figure({name: {"1": rate}}),
        )
    ):
        save(figure, tmp_path / f"{place}.svg")
    legend = pass_at_k_figure({name: {"1": rate}}).axes[0].get_legend()
    assert [text.get_text().strip() for text in legend.get_texts()] == [plain(name).strip()]
