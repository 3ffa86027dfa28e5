"""Charts: round ticks, readable numbers, and nothing drawn where there is no measurement."""

import re

import numpy as np
import pytest

from scalable_gpe.formatting import Estimate
from scalable_gpe.html_report.charts import (
    Axis,
    Band,
    IntervalRow,
    Marks,
    Series,
    interval_chart,
    line_chart,
    number,
    span,
)


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        (Axis("", 0, 7), [0, 2, 4, 6]),
        (Axis("", 0.9, 1.0), [0.9, 0.92, 0.94, 0.96, 0.98, 1.0]),
        (Axis("", 1, 1000, log=True), [1, 10, 100, 1000]),
        (Axis("", 2, 9, log=True), [2, 5]),
    ],
)
def test_ticks(axis, expected):
    np.testing.assert_allclose(axis.ticks(), expected)


def test_numbers():
    assert [number(value) for value in (-0.0, 1e-6, 20_000, 3e-7, 0.02)] == ["0", "10⁻⁶", "20,000", "3·10⁻⁷", "0.02"]


def test_span_ignores_what_is_not_a_number():
    assert span([np.nan, 1.0, np.inf, 3.0]) == (0.9, 3.1)
    assert span([np.nan]) == (0.0, 1.0) and span([-1.0], log=True) == (0.1, 10.0)


def test_points_below_the_axis_are_left_out():
    series = Series("a", np.array([1.0, 2.0, 3.0, 4.0]), np.array([1e-9, 0.1, np.nan, 0.5]), 0)
    chart = line_chart(
        "t",
        Axis("x", 1, 4),
        Axis("y", 1e-6, 1, log=True),
        [series],
        marks=Marks([2.0, 9.0], "m"),
        band=Band(1e-9, 0.1, "b"),
    )
    assert chart.count("<circle") == 2 and "0.5 at 4" in chart
    assert chart.count('class="mark"') == 1  # the other one lies outside


def test_intervals_stay_within_the_chart():
    chart = interval_chart("t", Axis("x", 0, 1), [IntervalRow("a", Estimate(0.5, -3.0, 7.0), 0, reference=9.0)])
    low, high = re.search(r'<line x1="([\d.]+)" x2="([\d.]+)"', chart[chart.index("interval") :]).groups()
    assert 0 < float(low) < float(high) < 520
