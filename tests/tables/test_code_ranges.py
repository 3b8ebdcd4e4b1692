"""The codes of an interval are those that decode into it: not one fewer, not one more."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from anyorder.tables.columns import NumberColumn
from anyorder.tables.engine import code_range, codes_up_to

ROWS = 3000
BELL = np.random.default_rng(0).normal(500, 60, ROWS)
WHOLE = BELL.round().astype(int)
START = pd.Timestamp("2020-01-01")
SERIES = {
    "whole": pd.Series(WHOLE),
    "nullable": pd.Series(WHOLE).astype("Int64"),
    "bytes": pd.Series((BELL / 10 - 45).round().clip(0, 255).astype(np.uint8)),
    "tenths": pd.Series(BELL.round(1)),
    "single tenths": pd.Series(BELL.round(1).astype(np.float32)),
    "smooth": pd.Series(BELL),
    "decimals": pd.Series([Decimal(f"{value:.2f}") for value in BELL], dtype=object),
    "zero or whole": pd.Series(np.where(WHOLE % 5 < 2, 0, WHOLE)),
    "five or cents": pd.Series(np.where(WHOLE % 5 < 2, 500.0, BELL.round(2))),
    "days": pd.Series(START + pd.to_timedelta(WHOLE, unit="D")),
    "hours of a zone": pd.Series(START.tz_localize("Europe/Paris") + pd.to_timedelta(WHOLE, "h")),
    "dates": pd.Series([datetime.date(2020, 1, 1) + datetime.timedelta(int(d)) for d in WHOLE]),
    "minutes": pd.Series(pd.to_timedelta(WHOLE, unit="min")),
    "finer than float32": pd.Series((1e12 + BELL * 1e9).astype(np.int64)),
    "great": pd.Series(2**60 + WHOLE),
    "few": pd.Series(WHOLE % 7),
    "far atoms": pd.Series(np.where(WHOLE % 5 < 4, 10**9 + WHOLE % 3, WHOLE)),
}

FINE = {"smooth", "finer than float32"}
"""There a single value lies between two codes."""


def decoded(column, codes):
    series = column.decode(np.atleast_1d(codes))
    return column.measurement.numbers(series, column.name)


@pytest.fixture(params=SERIES)
def column(request):
    return NumberColumn.fit(SERIES[request.param].rename(request.param))


def beside(code, towards):
    return np.nextafter(np.float32(code), np.float32(towards)).astype(np.float64)


def test_the_range_is_what_decodes_into_the_interval(column):
    values = column.measurement.numbers(SERIES[column.name].rename(column.name), column.name)
    low, high = np.quantile(values, [0.3, 0.6], method="nearest")
    for ends in ((low, high), (low, low), (None, high), (low, None), (low - 0.3, high + 0.3)):
        if ends == (low, low) and column.name in FINE:
            continue
        first, last = code_range(column, *ends)
        least = -np.inf if ends[0] is None else ends[0]
        most = np.inf if ends[1] is None else ends[1]
        if ends[0] is not None:
            assert decoded(column, first) >= column.measurement.held(np.array([least]))
            assert decoded(column, beside(first, -np.inf)) < least
        if ends[1] is not None:
            assert decoded(column, last) <= column.measurement.held(np.array([most]))
            assert decoded(column, beside(last, np.inf)) > most
        inside = [a for a in column.atom_values if least <= a <= most]
        there = [c for c in column.atom_codes if first <= c <= last]
        assert len(inside) == len(there)


def test_neighbouring_ranges_leave_no_code_out():
    for name in ("whole", "few", "zero or whole", "bytes"):
        column = NumberColumn.fit(SERIES[name].rename(name))
        for value in (0, 3, 5, 480):
            _, last = code_range(column, None, value)
            first, _ = code_range(column, value + 1, None)
            assert first == beside(last, np.inf)
            np.testing.assert_equal(codes_up_to(column, np.array([value, value + 0.7])), last)


def test_the_ends_of_a_dtype_hold_all_that_is_beyond_them():
    column = NumberColumn.fit(SERIES["bytes"].rename("bytes"))
    assert code_range(column, 0, 5)[0] < -9e4
    assert code_range(column, 250, 255)[1] > 9e4


def test_an_interval_between_two_steps_has_no_codes():
    whole = NumberColumn.fit(SERIES["whole"].rename("whole"))
    assert code_range(whole, 500.2, 500.9) is None
    assert code_range(whole, 500.2, 501.4) == code_range(whole, 501, 501)
    great = NumberColumn.fit(SERIES["finer than float32"].rename("great"))
    value = float(SERIES["finer than float32"].iloc[0])
    first, last = code_range(great, value, value)
    assert first == last == great.encode(pd.Series([value], name="great"))[0][0]
    assert not len(codes_up_to(whole, np.zeros(0)))
