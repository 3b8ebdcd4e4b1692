"""Every dtype comes back as it went; atoms are exact; densities change by the true slope."""

import datetime
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyorder import QueryError, SchemaError
from anyorder.tables.columns import CategoryColumn, NumberColumn, repeated_values
from anyorder.tables.schema import column_from
from anyorder.tables.type_inference import infer_column

RANDOM = np.random.default_rng(20221128)
DAYS = pd.to_datetime(["2024-02-29", "1999-12-31", "2031-07-01"]).as_unit("s")
CLOCK = DAYS.as_unit("us") + pd.to_timedelta([1, 62, 3601], unit="s")
SERIES = {
    "int64": pd.Series([3, 1, 2]),
    "int8": pd.Series([3, -100, 127], dtype="int8"),
    "uint64": pd.Series([0, 1, 2], dtype="uint64"),
    "great ids": pd.Series([2**62 + 1, 2**62 + 3, 2**62 + 3]),
    "Int64": pd.Series([3, None, 2], dtype="Int64"),
    "float64": pd.Series([0.25, np.nan, -7.5]),
    "float32": pd.Series([0.1, 0.2, np.nan], dtype="float32"),
    "Float64": pd.Series([0.25, None, -7.5], dtype="Float64"),
    "arrow ints": pd.Series([1, None, 5], dtype="int64[pyarrow]"),
    "arrow floats": pd.Series([1.5, None, 5], dtype="double[pyarrow]"),
    "arrow times": pd.Series(CLOCK).astype("timestamp[us][pyarrow]"),
    "arrow zones": pd.Series(CLOCK.tz_localize("UTC")).astype("timestamp[us, tz=UTC][pyarrow]"),
    "arrow dates": pd.Series(DAYS).astype("date32[day][pyarrow]"),
    "arrow text": pd.Series(["a", None, "b"], dtype="large_string[pyarrow]"),
    "decimals": pd.Series([Decimal("1.10"), None, Decimal("2.35")], dtype=object),
    "days": pd.Series(DAYS),
    "seconds": pd.Series(CLOCK),
    "nanoseconds": pd.Series(CLOCK.as_unit("ns")),
    "zone": pd.Series(CLOCK.tz_localize("Europe/Paris")),
    "offset": pd.Series(CLOCK.tz_localize("UTC+02:00")),
    "gaps in time": pd.Series([CLOCK[0], None, CLOCK[1]], dtype="datetime64[us]"),
    "far years": pd.Series(np.array(["0900-01-01", "3000-05-05"], dtype="datetime64[s]")),
    "dates": pd.Series([datetime.date(2024, 2, 29), None, datetime.date(1999, 1, 1)], dtype=object),
    "durations": pd.Series(pd.to_timedelta([90, 30, 3600], unit="s")),
    "bool": pd.Series([True, False, True]),
    "boolean": pd.Series([True, None, False], dtype="boolean"),
    "objects of bool": pd.Series([True, None, False], dtype=object),
    "str": pd.Series(["b", "a", np.nan], dtype="str"),
    "string": pd.Series(["b", "a", None], dtype="string"),
    "objects of str": pd.Series(["b", None, "a"], dtype=object),
    "text and numbers": pd.Series(["b", "c", "d", 3, 2.5], dtype=object),
    "category": pd.Series(["b", None, "a"], dtype=pd.CategoricalDtype(["b", "c", "a"])),
    "ordered": pd.Series([3, 1], dtype=pd.CategoricalDtype([3, 2, 1], ordered=True)),
    "constant": pd.Series([7.5] * 4),
    "one row": pd.Series([7]),
    "huge and tiny": pd.Series([1e300, 1e-300, -1e300, 0.0, 1e300, 1e-300, -1e300, 0.0]),
}


def fitted(series: pd.Series, **options):
    return infer_column(series.rename("c"), **options)


@pytest.mark.parametrize("name", SERIES)
def test_values_and_dtype_come_back(name):
    series = SERIES[name].rename("c")
    # Twice over, so that all values repeat and must come back exactly.
    series = pd.concat([series, series], ignore_index=True)
    column = fitted(series)
    codes, missing = column.encode(series)
    assert (codes == codes.astype(np.float32)).all()
    assert missing.tolist() == series.isna().tolist()
    assert (codes[missing] == 0).all()
    pd.testing.assert_series_equal(column.decode(codes, missing), series)
    assert column.dtype == str(series.dtype)


@pytest.mark.parametrize("name", SERIES)
def test_json_keeps_a_column(name):
    column = fitted(SERIES[name])
    back = column_from(json.loads(json.dumps(column.describe())))
    assert back == column
    assert back.variable == column.variable
    assert back.summary == column.summary


def test_a_dtype_without_gaps_gives_way():
    gap = np.array([True, False, False])
    for dtype, expected in {"int64": "float64", "uint8": "float64", "bool": "boolean"}.items():
        column = fitted(pd.Series([1, 0, 1], dtype=dtype))
        back = column.decode(column.encode(pd.Series([1, 0, 1], dtype=dtype))[0], gap)
        assert (str(back.dtype), back.isna().tolist()) == (expected, gap.tolist())
    numbers = fitted(pd.Series([5, 7, 5]), declared="category")
    assert numbers.decode(np.array([0, 1])).tolist() == [5, 7]
    assert str(numbers.decode(np.array([0, 1, 1]), gap).dtype) == "float64"


def test_samples_beyond_the_data_stay_inside_the_dtype():
    codes = np.array([-9e3, -50.0, 50.0, 9e3])
    for name in SERIES:
        column = fitted(SERIES[name])
        if isinstance(column, NumberColumn):
            back = column.decode(codes)
            assert back.notna().all()
            assert str(back.dtype) == column.dtype
            if column.dtype.startswith(("float", "Float")):
                assert np.isfinite(back.to_numpy(dtype=float)).all()


def test_few_or_frequent_values_are_all_atoms():
    assert repeated_values(np.repeat([3.0, 1.0], 5)).tolist() == [1.0, 3.0]
    assert len(repeated_values(np.repeat(np.arange(1000.0), 20))) == 1000
    assert len(repeated_values(np.repeat(np.arange(1000.0), 19))) == 0
    assert repeated_values(np.array([4.0])).tolist() == [4.0]
    assert len(repeated_values(np.arange(20.0))) == 0  # each once: nothing repeats


def test_spikes_are_atoms_and_the_rest_is_not():
    values = np.concatenate([np.zeros(300), np.full(100, -999.0), RANDOM.lognormal(size=600)])
    series = pd.Series(values, name="c")
    column = NumberColumn.fit(series)
    assert column.atom_values == (-999.0, 0.0)
    codes, missing = column.encode(series)
    assert set(codes[:300]) == {column.variable.atoms[1]}
    assert not set(codes[400:]) & set(column.variable.atoms)
    assert np.abs(codes).max() < 6
    back = column.decode(codes, missing).to_numpy()
    assert (back[:400] == values[:400]).all()
    np.testing.assert_allclose(back[400:], values[400:], rtol=1e-4, atol=1e-6)


def test_atoms_that_float32_cannot_tell_apart_keep_codes_of_their_own():
    values = np.repeat(1e9 + np.arange(4) * 1e-6, 3)
    values = np.concatenate([values, [0.0, 2e9] * 40])
    column = NumberColumn.fit(pd.Series(values, name="c"))
    assert len(set(column.variable.atoms)) == 6
    codes, missing = column.encode(pd.Series(values))
    assert (column.decode(codes, missing).to_numpy() == values).all()
    # a value that is no atom but rounds to one's code stands beside it
    beside, _ = column.encode(pd.Series([1e9 - 1e-6, 1e9 + 5e-7, 1e9 + 4e-6]))
    assert not set(beside) & set(column.variable.atoms)


RESOLUTIONS = {
    "whole": (pd.Series(range(5)), 1.0),
    "whole floats": (pd.Series([1.0, 5.0, np.nan]), 1.0),
    "tenths": (pd.Series([0.1, 0.3, 7.0]), 0.1),
    "cents": (pd.Series([0.25, 19.99]), 0.01),
    "single cents": (pd.Series([0.25, 19.99], dtype="float32"), 0.01),
    "millionths": (pd.Series([0.000001, 2.0]), 1e-6),
    "real": (pd.Series([1 / 3, 2.0]), None),
    "huge": (pd.Series([1e300, 2.0]), None),
    "days": (pd.Series(DAYS), 86400.0),
    "local midnights": (pd.Series(pd.date_range("2024-01-01", periods=3, tz="Asia/Tokyo")), 86400),
    "seconds": (pd.Series(CLOCK), 1.0),
    "half hours": (pd.Series(pd.date_range("2024", periods=3, freq="30min")), 60.0),
    "nanoseconds": (pd.Series(pd.to_datetime([1, 5], unit="ns")), None),
}


@pytest.mark.parametrize("name", RESOLUTIONS)
def test_resolution(name):
    series, step = RESOLUTIONS[name]
    assert fitted(series).resolution == (None if step is None else pytest.approx(step))


def test_samples_are_rounded_as_the_data_is():
    prices = pd.Series(np.round(RANDOM.lognormal(3, 1, size=2000), 2), name="c")
    sample = NumberColumn.fit(prices).decode(RANDOM.normal(size=500))
    assert (np.round(sample, 2) == sample).all()
    days = pd.Series(pd.date_range("2020-01-01", periods=500), name="c")
    sample = NumberColumn.fit(days).decode(RANDOM.normal(size=500))
    assert (sample == sample.dt.normalize()).all()


def test_whole_numbers_to_a_million_come_back_exactly():
    series = pd.Series(RANDOM.permutation(1_000_000)[:5000], name="c")
    column = NumberColumn.fit(series)
    pd.testing.assert_series_equal(column.decode(column.encode(series)[0]), series)


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e300])
def test_log_density_factor_is_the_slope_of_the_score(scale):
    series = pd.Series(RANDOM.normal(size=400), name="c") * scale
    column = NumberColumn.fit(series)
    x = np.linspace(-2, 2, 41) * scale
    step = 1e-5 * scale
    high, low = (column.gaussianizer.forward(x + move) for move in (step, -step))
    slope = np.log(high - low) - np.log(2e-5) - np.log(scale)
    np.testing.assert_allclose(column.log_density_factor(pd.Series(x)), slope, atol=1e-3)


def test_log_density_factor_is_zero_at_atoms_gaps_and_categories():
    values = pd.Series([0.0] * 50 + list(RANDOM.normal(size=200)) + [np.nan], name="c")
    factor = NumberColumn.fit(values).log_density_factor(values)
    assert (factor[:50] == 0).all()
    assert (factor[50:250] != 0).all()
    assert factor[250] == 0
    assert (fitted(pd.Series(["a", "b"])).log_density_factor(pd.Series(["a"])) == 0).all()


def test_a_density_in_units_integrates_to_one():
    series = pd.Series(np.exp(RANDOM.normal(size=1000)), name="c")
    column = NumberColumn.fit(series)
    x = column.gaussianizer.inverse(np.linspace(-8, 8, 20001))
    z = column.gaussianizer.forward(x)
    density = np.exp(-0.5 * z**2 + column.log_density_factor(pd.Series(x))) / np.sqrt(2 * np.pi)
    assert np.trapezoid(density, x) == pytest.approx(1, abs=1e-5)


def test_ten_thousand_levels():
    levels = [f"level {place:05}" for place in range(10_000)]
    series = pd.Series(RANDOM.choice(levels, size=50_000), name="c")
    column = CategoryColumn.fit(series)
    codes, missing = column.encode(series)
    assert column.variable.num_levels == series.nunique()
    pd.testing.assert_series_equal(column.decode(codes, missing), series)


def test_levels_of_other_types_are_read():
    text = fitted(pd.Series(["1", "2", "x", "y", "z"]))
    assert text.encode(pd.Series([2.0, 1.0]))[0].tolist() == [1, 0]
    numbers = fitted(pd.Series([10, 20]), declared="category")
    assert numbers.encode(pd.Series(["20", "10.0"]))[0].tolist() == [1, 0]
    flags = fitted(pd.Series([True, True]))
    assert flags.levels == (False, True)
    assert flags.encode(pd.Series(["no", "TRUE", 0, 1], dtype=object))[0].tolist() == [0, 1, 0, 1]
    words = fitted(pd.Series(["yes", "no"]), declared="boolean")
    assert words.decode(np.array([1, 0])).tolist() == [True, False]
    bins = pd.cut(pd.Series([1, 5, 9]), [0, 4, 10])
    column = fitted(bins)
    assert column.levels == ("(0, 4]", "(4, 10]")
    assert column.decode(column.encode(bins)[0]).tolist() == ["(0, 4]", "(4, 10]", "(4, 10]"]


def test_values_of_other_types_are_read():
    number = fitted(pd.Series([1, 2, 3]))
    same = number.encode(pd.Series([1, 2, 3]))[0].tolist()
    for other in (["1", "2", "3"], [1.0, 2.0, 3.0], [Decimal(1), 2, "3.0"]):
        assert number.encode(pd.Series(other, dtype=object))[0].tolist() == same
    time = fitted(pd.Series(CLOCK.tz_localize("Europe/Paris")))
    text = [stamp.isoformat() for stamp in CLOCK.tz_localize("Europe/Paris")]
    assert (
        time.encode(pd.Series(text))[0].tolist()
        == time.encode(pd.Series(CLOCK.tz_localize("Europe/Paris")))[0].tolist()
    )
    assert fitted(pd.Series(DAYS)).encode(pd.Series(["1999-12-31", None]))[1].tolist() == [0, 1]
    wait = fitted(pd.Series(pd.to_timedelta([90, 30], unit="s")))
    assert (
        wait.encode(pd.Series(["0 days 00:00:30"]))[0][0]
        == wait.encode(pd.Series(pd.to_timedelta([30], unit="s")))[0][0]
    )


def test_a_gap_of_a_context_category_is_a_level():
    column = CategoryColumn.fit(pd.Series(["(missing)", "a", None], name="c"), context=True)
    assert column.variable.levels == ("(missing)", "a", "((missing))")
    codes, missing = column.encode(pd.Series(["a", None]))
    assert (codes.tolist(), missing.tolist()) == ([1, 2], [False, True])
    assert column.decode(codes).isna().tolist() == [False, True]


SUMMARIES = {
    "number, whole, 2 repeated values, 33% missing": pd.Series([1, 2, None] * 3, dtype="Int64"),
    "number, in steps of 0.01": pd.Series([0.25, 1.5, 2.0]),
    "number, under 1% missing": pd.Series([*RANDOM.normal(size=300), None]),
    "number, whole, 1 repeated value": pd.Series([4, 4]),
    "date and time, in seconds": pd.Series(CLOCK),
    "date": SERIES["arrow dates"].astype(object),
    "duration, in seconds": pd.Series(pd.to_timedelta([90, 31], unit="s")),
    "boolean": pd.Series([True]),
    "category, 3 levels, ordered": SERIES["ordered"],
    "category, 1,500 levels, mostly distinct: if it names the row, ignore it": pd.Series(
        [f"name {place}" for place in range(1500)]
    ),
}


@pytest.mark.parametrize("line", SUMMARIES)
def test_summary(line):
    assert fitted(SUMMARIES[line]).summary == line


AGES, JOBS = fitted(pd.Series([1.0, 2.0])), fitted(pd.Series(["nurse", "clerk"]))
REFUSED = {
    "infinity": (
        lambda: fitted(pd.Series([1.0, -np.inf])),
        SchemaError,
        'Column "c" must hold finite numbers; row 1 is -inf. Replace it by NaN, or declare '
        "missing_values=[inf, -inf].",
    ),
    "infinity later": (lambda: AGES.encode(pd.Series([np.inf])), QueryError, "row 0 is inf."),
    "not a number": (
        lambda: AGES.encode(pd.Series(["1", "old"])),
        QueryError,
        "Column \"c\" must hold numbers; got 'old' (row 1). If it stands for a missing "
        "value, leave the cell empty.",
    ),
    "a time": (lambda: AGES.encode(pd.Series(CLOCK)), QueryError, 'Column "c" must hold numbers'),
    "unseen": (
        lambda: JOBS.encode(pd.Series(["nurze"])),
        QueryError,
        'Column "c" must hold levels seen in training; got \'nurze\'. Did you mean "nurse"? '
        "Replace it by a known level, or leave it empty.",
    ),
    "lists": (
        lambda: fitted(pd.Series([[1], [2]])),
        SchemaError,
        'Column "c" must hold plain values',
    ),
    "periods": (
        lambda: fitted(pd.Series(pd.period_range("2024", periods=2, freq="M"))),
        SchemaError,
        'Column "c" holds periods. Convert it with .dt.to_timestamp() first.',
    ),
    "complex": (lambda: fitted(pd.Series([1j])), SchemaError, 'Column "c" holds complex numbers'),
    "a zone": (
        lambda: fitted(pd.Series(CLOCK)).encode(pd.Series(CLOCK.tz_localize("UTC"))),
        QueryError,
        "must hold times without a time zone, as in training",
    ),
    "no zone": (
        lambda: fitted(pd.Series(CLOCK.tz_localize("UTC"))).encode(pd.Series(CLOCK)),
        QueryError,
        "must hold times with a time zone",
    ),
    "both": (
        lambda: fitted(pd.Series([CLOCK[0], CLOCK[1].tz_localize("UTC")], dtype=object)),
        SchemaError,
        "must hold times all with or all without a time zone; it has both",
    ),
    "not a time": (
        lambda: fitted(pd.Series(CLOCK)).encode(pd.Series(["31/12/2024"])),
        QueryError,
        "2024-05-31T18:00:00; got '31/12/2024'. Write the year first, then month and day",
    ),
    "a German time": (
        lambda: fitted(pd.Series(CLOCK)).encode(pd.Series(["31.12.2024"])),
        QueryError,
        "got '31.12.2024'. Write 2024-12-31;",
    ),
    "a number for a time": (
        lambda: fitted(pd.Series(CLOCK)).encode(pd.Series([3.0])),
        QueryError,
        "must hold dates or times; got float64",
    ),
    "not a duration": (
        lambda: fitted(pd.Series(pd.to_timedelta([1], unit="s"))).encode(pd.Series(["long"])),
        QueryError,
        "must hold durations; got 'long'",
    ),
    "out of the unit": (
        lambda: fitted(SERIES["nanoseconds"]).encode(SERIES["far years"]),
        QueryError,
        'holds a time that its unit, "ns", cannot express',
    ),
    "not a boolean": (
        lambda: fitted(pd.Series(["yes", "maybe"]), declared="boolean"),
        SchemaError,
        "must hold booleans (true/false, yes/no, 1/0); got 'maybe'",
    ),
    "no column": (lambda: column_from({"column": "x"}), SchemaError, "not a column written by"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_and_how(name):
    build, error, sentence = REFUSED[name]
    with pytest.raises(error) as caught:
        build()
    assert sentence in str(caught.value)


@settings(max_examples=50)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_any_doubles_go_and_come(values):
    series = pd.Series(values, name="c")
    column = NumberColumn.fit(series)
    codes, missing = column.encode(series)
    assert np.isfinite(codes.astype(np.float32)).all()
    assert np.isfinite(column.log_density_factor(series)).all()
    back = column.decode(codes, missing).to_numpy()
    assert np.isfinite(back).all()
    atoms = series.isin(column.atom_values).to_numpy()
    assert (back[atoms] == series[atoms]).all()
