"""Frames of every kind go in and come back; what is wrong is said in a sentence."""

import gzip
import json
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anyorder import ConfigError, QueryError, SchemaError
from anyorder.tables.files import column_names, read_chunks, read_table, write_chunks
from anyorder.tables.schema import TableSchema, as_frame

RANDOM = np.random.default_rng(20221128)
FRAME = pd.DataFrame(
    {
        "age": [41, 30, 22, 30],
        "income": [1200.5, np.nan, 800.25, 950.0],
        "job": ["nurse", "clerk", None, "clerk"],
        "married": [True, False, False, True],
        "since": pd.to_datetime(["2001-05-04", "2010-01-01", None, "2020-02-29"]),
        "empty": [None] * 4,
        "size": pd.Categorical(["S", "L", "S", None], ["S", "M", "L"], ordered=True),
    }
)


class HasToPandas:
    """What polars and Arrow look like from here."""

    def __init__(self, frame):
        self.frame = frame

    def to_pandas(self):
        return self.frame


def test_a_frame_comes_back_whole():
    table = TableSchema.infer(FRAME)
    x, missing = table.encode(FRAME)
    assert (x.dtype, missing.dtype, x.shape, missing.shape) == (
        torch.float32,
        torch.bool,
        (4, 6),
        (4, 6),
    )
    assert x.isfinite().all()
    assert table.names == ("age", "income", "job", "married", "since", "size")
    assert table.schema.names == table.names
    back = table.decode(x, missing)
    pd.testing.assert_frame_equal(back.drop(columns="age"), FRAME.drop(columns="age"), rtol=1e-6)
    assert back["age"].tolist() == FRAME["age"].tolist()
    assert back["age"].dtype == "int64"


def test_json_keeps_a_table():
    options = {"types": {"age": "category", "married": "ignore"}, "missing_values": [-1, np.inf]}
    table = TableSchema.infer(FRAME, context=["job", "income"], **options)
    back = TableSchema.from_description(json.loads(json.dumps(table.describe())))
    assert back == table
    assert back.schema == table.schema


def test_context_comes_last_and_holds_its_gaps():
    table = TableSchema.infer(FRAME, context=["income", "age", "job"])
    assert table.schema.names == (
        "married", "since", "size", "age", "income", "income is missing", "job",
    )  # fmt: skip
    assert [v.context for v in table.schema] == [False] * 3 + [True] * 4
    assert table.schema["job"].levels == ("clerk", "nurse", "(missing)")
    x, missing = table.encode(FRAME)
    assert missing.shape == (4, 3)
    assert x[:, 5].tolist() == [0, 1, 0, 0]
    assert x[:, 6].tolist() == [1, 0, 2, 0]
    columns = ["income", "job", "since", "size"]
    back = table.decode(x, missing)
    pd.testing.assert_frame_equal(back[columns], FRAME[columns], rtol=1e-6)
    assert list(back.columns) == list(FRAME.columns)


def test_the_name_of_a_companion_is_free():
    frame = pd.DataFrame({"a": [1.5, None], "a is missing": [1, 0]})
    assert len(set(TableSchema.infer(frame, context=["a"]).schema.names)) == 3


def test_order_comes_first():
    table = TableSchema.infer(FRAME, order=["since", "job"])
    assert table.names == ("since", "job", "age", "income", "married", "size")
    back = table.decode(*table.encode(FRAME))
    assert list(back.columns) == list(FRAME.columns)


def test_columns_may_lack_and_others_are_passed_over():
    table = TableSchema.infer(FRAME)
    x, missing = table.encode(pd.DataFrame({"job": ["clerk", None], "shoe": [1, 2]}))
    assert x.shape == (2, 6)
    assert missing.tolist() == [[1, 1, 0, 1, 1, 1], [1] * 6]
    assert table.encode(FRAME.iloc[:0])[0].shape == (0, 6)
    assert table.decode(torch.zeros(0, 6)).shape == (0, 7)


def test_a_table_from_csv_is_read_like_the_one_of_training():
    table = TableSchema.infer(FRAME)
    text = FRAME.astype(object).where(FRAME.notna(), None)
    text = text.map(lambda value: None if value is None else str(value))
    for ours, theirs in zip(table.encode(text), table.encode(FRAME), strict=True):
        assert torch.equal(ours, theirs)


def test_markers_are_gaps_and_dtypes_stay():
    frame = pd.DataFrame(
        {"a": [1, -999, 3, 4], "b": ["x", "?", "y", "x"], "c": [0.5, 2, np.inf, 1]}
    )
    table = TableSchema.infer(frame, missing_values=["?", -999, np.inf])
    x, missing = table.encode(frame)
    assert missing.tolist() == [[0, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert table.schema["b"].levels == ("x", "y")
    assert table.decode(x).dtypes.astype(str).tolist() == [
        "int64",
        str(frame["b"].dtype),
        "float64",
    ]
    assert table.decode(x, missing)["b"].isna().tolist() == [False, True, False, False]
    assert (table.log_density_factors(frame)[missing] == 0).all()
    numbers = pd.DataFrame({"a": ["1", "?", "3", "-999"]})
    table = TableSchema.infer(numbers, missing_values=["?", -999])
    assert table.encode(numbers)[1].tolist() == [[0], [1], [0], [1]]
    assert table.summary() == [("a", "number", "whole, 50% missing")]
    context = TableSchema.infer(frame, missing_values=["?", -999, np.inf], context=["b"])
    assert context.encode(frame)[0][1, 2] == 2


KINDS = {
    "numbers as text": (["1.5", "2", None], "number"),
    "dates as text": (["2024-01-31", "2023-12-01T10:00:00", None], "date and time"),
    "times with zones": (
        ["2024-01-31T10:00:00+01:00", "2024-07-31T10:00:00+02:00"],
        "date and time",
    ),
    "zones in some": (["2024-01-31T10:00:00+01:00", "2024-07-31T10:00:00"], "category"),
    "no date": (["2024-13-31", "2024-01-31"], "category"),
    "postcodes": (["01234", "90210", "10115"], "category"),
    "accounts": (["464549975476396706", "17000812700403217", "7"], "category"),
    "few numbers": (["1", "a", "b"], "category"),
    "booleans with gaps": ([True, None, False], "boolean"),
    "numbers as objects": (pd.Series([1, 2.5, None], dtype=object), "number"),
    "mixed booleans": (pd.Series([True, "a", "b"], dtype=object), "category"),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds(name):
    values, kind = KINDS[name]
    frame = pd.DataFrame({"c": values})
    table = TableSchema.infer(frame)
    assert table.summary()[0].kind == kind
    x, missing = table.encode(frame)
    assert missing[:, 0].tolist() == frame["c"].isna().tolist()
    assert table.decode(x, missing)["c"].isna().tolist() == frame["c"].isna().tolist()


def test_types_overrule():
    types = {"age": "category", "job": "ignore", "married": "number", "since": "datetime"}
    table = TableSchema.infer(FRAME, types=types)
    assert [line.kind for line in table.summary()] == [
        "category", "number", "ignored", "number", "date and time", "ignored", "category",
    ]  # fmt: skip
    back = table.decode(*table.encode(FRAME))
    assert back["age"].tolist() == FRAME["age"].tolist()
    assert back["job"].isna().all()
    assert back["job"].dtype == FRAME["job"].dtype
    assert back["married"].tolist() == [1, 0, 0, 1]


def test_ignored_columns_keep_their_dtype_where_it_has_gaps():
    names = ["age", "income", "job", "married", "since", "size"]
    table = TableSchema.infer(FRAME.assign(y=1.0), types=dict.fromkeys(names, "ignore"))
    back = table.decode(torch.zeros(2, 1))
    assert back[names].isna().all().all()
    assert [str(back[name].dtype) for name in names] == [
        "float64", "float64", str(FRAME["job"].dtype), "boolean", str(FRAME["since"].dtype),
        "category",
    ]  # fmt: skip


def test_log_density_factors_stand_at_their_columns():
    frame = pd.DataFrame({"x": RANDOM.normal(size=50), "c": ["a", "b"] * 25})
    table = TableSchema.infer(frame, order=["c", "x"])
    factors = table.log_density_factors(frame)
    assert (factors.dtype, factors.shape) == (torch.float64, (50, 2))
    assert (factors[:, 0] == 0).all()
    expected = table["x"].log_density_factor(frame["x"])
    np.testing.assert_array_equal(factors[:, 1].numpy(), expected)
    assert (table.log_density_factors(frame[["c"]]) == 0).all()


def test_three_hundred_columns():
    numbers = {f"x{place}": RANDOM.normal(size=200) for place in range(200)}
    texts = {f"c{place}": RANDOM.choice(["a", "b"], size=200) for place in range(100)}
    frame = pd.DataFrame({**numbers, **texts})
    table = TableSchema.infer(frame)
    back = table.decode(*table.encode(frame))
    pd.testing.assert_frame_equal(back, frame, rtol=1e-5, atol=1e-6)


CELLS = {
    "float": st.floats(-1e6, 1e6) | st.none(),
    "int": st.integers(-1000, 1000),
    "text": st.sampled_from(["red", "green", "blue", None]),
    "bool": st.booleans(),
    "time": st.datetimes(pd.Timestamp("1900-01-01"), pd.Timestamp("2100-01-01")) | st.none(),
}


@st.composite
def frames(draw):
    rows = draw(st.integers(1, 30))
    kinds = draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=6))
    cells = {
        f"{kind} {place}": draw(st.lists(CELLS[kind], min_size=rows, max_size=rows))
        for place, kind in enumerate(kinds)
    }
    dtypes = {
        "float": "float64",
        "int": "int64",
        "text": "str",
        "bool": "bool",
        "time": "datetime64[us]",
    }
    return pd.DataFrame(
        {name: pd.Series(v, dtype=dtypes[name.split()[0]]) for name, v in cells.items()}
    )


@settings(max_examples=60, deadline=None)
@given(frames())
def test_random_frames_come_back(frame):
    if frame.isna().all().all():
        return
    table = TableSchema.infer(frame)
    x, missing = table.encode(frame)
    assert x.isfinite().all()
    back = table.decode(x, missing)
    again, gaps = table.encode(back)
    assert torch.equal(gaps, missing)
    assert list(back.columns) == list(frame.columns)
    assert (back.isna() == frame.isna()).all().all()
    for name in frame.columns:
        assert back[name].dtype == frame[name].dtype or frame[name].isna().all()
        if name.split()[0] in ("text", "bool", "int"):
            pd.testing.assert_series_equal(back[name], frame[name], check_dtype=False)
        elif name in table.names and not missing[:, table.names.index(name)].all():
            # within the float32 of a score
            place = table.names.index(name)
            torch.testing.assert_close(again[:, place], x[:, place], rtol=1e-4, atol=1e-4)


SOURCES = {
    "frame": pd.DataFrame({"x0": [1, 2], "x1": [3, 4]}),
    "array": np.array([[1, 3], [2, 4]]),
    "objects": np.array([[1, 3], [2, 4]], dtype=object),
    "lists": {"x0": [1, 2], "x1": [3, 4]},
    "records": [{"x0": 1, "x1": 3}, {"x0": 2, "x1": 4}],
    "polars": HasToPandas(pd.DataFrame({"x0": [1, 2], "x1": [3, 4]})),
}


@pytest.mark.parametrize("name", SOURCES)
def test_as_frame(name):
    pd.testing.assert_frame_equal(as_frame(SOURCES[name]), SOURCES["frame"])


def test_names_of_frames():
    assert as_frame(pd.DataFrame([[1, 2]])).columns.tolist() == ["0", "1"]
    assert as_frame(np.zeros((1, 2)), columns=["a", "b"]).columns.tolist() == ["a", "b"]
    kept = pd.DataFrame({"a": [1]}, index=["row"])
    assert as_frame(kept).index.tolist() == ["row"]


def infer(**columns):
    return TableSchema.infer(pd.DataFrame(columns))


REFUSED = {
    "a number": (lambda: as_frame(5), SchemaError, "a list of dicts; got int"),
    "a series": (lambda: as_frame(pd.Series([1])), SchemaError, "got Series"),
    "odd to_pandas": (lambda: as_frame(HasToPandas(3)), SchemaError, "got HasToPandas"),
    "a vector": (
        lambda: as_frame(np.zeros(3)),
        SchemaError,
        "two dimensions, rows and columns; got 1",
    ),
    "few names": (
        lambda: as_frame(np.zeros((1, 2)), columns=["a"]),
        SchemaError,
        "got 1 names for 2 columns",
    ),
    "names of a dict": (
        lambda: as_frame({"a": [1]}, columns=["b"]),
        ConfigError,
        "`columns` names the columns of an array",
    ),
    "uneven": (lambda: as_frame({"a": [1], "b": [1, 2]}), SchemaError, "all of one length"),
    "scalars": (lambda: as_frame({"a": 1}), SchemaError, "must hold one list a column"),
    "no rows": (lambda: as_frame({"a": []}), SchemaError, "got 0 rows and 1 columns"),
    "no columns": (lambda: as_frame([]), SchemaError, "got 0 rows and 0 columns"),
    "twice": (
        lambda: as_frame(pd.DataFrame([[1, 2]], columns=[1, "1"])),
        SchemaError,
        'Column names must differ; "1" occurs 2 times. Rename it.',
    ),
    "no name": (
        lambda: as_frame(pd.DataFrame([[1]], columns=[""])),
        SchemaError,
        "Every column must have a name; column 0 has none.",
    ),
    "two rows of names": (
        lambda: as_frame(pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")]))),
        SchemaError,
        "one row of column names",
    ),
    "half numbers": (
        lambda: infer(pay=["1", "2", "?", "3"]),
        SchemaError,
        "Column \"pay\" looks like numbers but holds '?' (row 2). Declare '?' as a missing "
        "value (missing_values), or the column as categories (types).",
    ),
    "half numbers as objects": (
        lambda: infer(pay=[1, 2.5, "none yet"]),
        SchemaError,
        "looks like numbers but holds 'none yet' (row 2)",
    ),
    "text as numbers": (
        lambda: TableSchema.infer(FRAME, types={"job": "number"}),
        SchemaError,
        "Column \"job\" must hold numbers; got 'nurse'",
    ),
    "numbers as times": (
        lambda: TableSchema.infer(FRAME, types={"age": "datetime"}),
        SchemaError,
        'Column "age" must hold dates or times; got int64',
    ),
    "all empty": (
        lambda: infer(a=[None, None]),
        SchemaError,
        "must have a column that can be queried",
    ),
    "unknown in types": (
        lambda: TableSchema.infer(FRAME, types={"agee": "number"}),
        SchemaError,
        '`types` must name columns; got "agee". Did you mean "age"?',
    ),
    "unknown in context": (
        lambda: TableSchema.infer(FRAME, context=["jobs"]),
        SchemaError,
        '`context` must name columns; got "jobs". Did you mean "job"?',
    ),
    "unknown in order": (
        lambda: TableSchema.infer(FRAME, order=["jobs"]),
        SchemaError,
        '`order` must name columns; got "jobs"',
    ),
    "unknown type": (
        lambda: TableSchema.infer(FRAME, types={"age": "numbr"}),
        ConfigError,
        '`types["age"]` must be one of "number", "category", "boolean", "datetime", "dmy", "mdy", '
        '"ignore"; got "numbr". Did you mean "number"?',
    ),
    "a need": (
        lambda: TableSchema.infer(FRAME).encode(FRAME[["age"]], needs=["job"]),
        QueryError,
        'The frame must have the column "job"; it has none.',
    ),
    "types by place": (
        lambda: TableSchema.infer(FRAME, types=["number"]),
        SchemaError,
        "`types` must be a dictionary from columns to types; got list.",
    ),
    "signs among a few numbers": (
        lambda: TableSchema.infer(pd.DataFrame({"a": ["?", "?", "?", "3.5", None]})),
        SchemaError,
        "Declare '?' as a missing value (missing_values)",
    ),
    "complex numbers": (
        lambda: TableSchema.infer(FRAME).encode(FRAME.assign(age=1j)),
        QueryError,
        'Column "age" must hold real numbers; it holds complex ones.',
    ),
    "no context": (
        lambda: TableSchema.infer(FRAME, context=["age"]).encode(FRAME[["job"]]),
        QueryError,
        'The frame must have the column "age"; it has none.',
    ),
    "a gap in context": (
        lambda: TableSchema.infer(FRAME, context=["age"]).encode(FRAME.assign(age=[1, None, 2, 3])),
        QueryError,
        'Column "age" is always given and had no missing values in training; row 1 has one. Fill '
        "it.",
    ),
    "a column": (
        lambda: TableSchema.infer(FRAME)["jobs"],
        QueryError,
        'There is no column "jobs" in the model. Did you mean "job"?',
    ),
    "points and commas": (
        lambda: TableSchema.infer(pd.DataFrame({"size": ["3,5", "4,5", "3.7", "2,5", "1"]})),
        SchemaError,
        "holds numbers with a point, '3.7' (row 2), and with a comma, '3,5' (row 0). Write them "
        "alike in the file: decimals with a point, thousands without a comma. If they are no",
    ),
    "a comma among whole numbers": (
        lambda: TableSchema.infer(pd.DataFrame({"size": ["3", "4", "3,7", "2"]})),
        SchemaError,
        "holds '3,7' (row 2). Write decimals with a point, and thousands without a comma; if they",
    ),
    "a comma in declared numbers": (
        lambda: TableSchema.infer(pd.DataFrame({"c": ["1.5", "3,7"]}), types={"c": "number"}),
        SchemaError,
        "must hold numbers; got '3,7' (row 1). Write decimals with a point, and thousands without",
    ),
    "a description": (lambda: TableSchema.from_description({}), SchemaError, "not a table written"),
    "a later one": (
        lambda: TableSchema.from_description({"format": 9}),
        SchemaError,
        "has format 9; this version reads 1",
    ),
    "no file": (lambda: read_table("no.csv"), ConfigError, 'There is no file "no.csv".'),
    "odd file": (
        lambda: read_table("people.xls"),
        ConfigError,
        'must be a .csv, .tsv, .csv.gz or .parquet file; got "people.xls".',
    ),
    "odd Parquet": (lambda: read_table("a.parquet.gz"), ConfigError, 'got "a.parquet.gz"'),
    "odd target": (lambda: write_chunks([FRAME], "people"), ConfigError, 'got "people"'),
    "no rows a chunk": (lambda: read_chunks("no.csv", rows=0), ConfigError, "`rows` must be"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_and_how(name):
    build, error, sentence = REFUSED[name]
    with pytest.raises(error) as caught:
        build()
    assert sentence in str(caught.value)


def test_codes_with_leading_zeros_stay_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("zip,age,share\n01234,41,0.5\n90210,7,0\n,3,\n")
    frame = read_table(path)
    assert frame["zip"].tolist()[:2] == ["01234", "90210"]
    assert frame["zip"].isna()[2]
    assert frame["age"].tolist() == [41, 7, 3]
    assert frame["share"].tolist()[:2] == [0.5, 0]


def test_more_digits_than_a_double_holds_are_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("account,age\n464549975476396706,41\n,7\n17000812700403217,3\n")
    frame = read_table(path)
    assert frame["account"].dropna().tolist() == ["464549975476396706", "17000812700403217"]
    assert frame["age"].tolist() == [41, 7, 3]


def test_a_header_with_one_name_twice_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("age,job,age\n1,a,2\n")
    with pytest.raises(SchemaError, match='"age" occurs 2 times'):
        column_names(path)  # which is what files are asked for that a model already knows
    with pytest.raises(SchemaError, match='"age" occurs 2 times'):
        read_table(path)


FILES = ["t.csv", "t.tsv", "t.csv.gz", "t.parquet"]


@pytest.mark.parametrize("name", FILES)
def test_files_come_back_whole_and_in_chunks(name, tmp_path):
    frame = FRAME[["age", "income", "job", "married"]]
    write_chunks([frame], tmp_path / name)
    back = read_table(tmp_path / name)
    pd.testing.assert_frame_equal(back, frame)
    chunks = list(read_chunks(tmp_path / name, rows=3))
    assert [len(chunk) for chunk in chunks] == [3, 1]
    pd.testing.assert_frame_equal(pd.concat(chunks, ignore_index=True), frame)


@pytest.mark.parametrize("name", FILES)
def test_files_with_markers(name, tmp_path):
    frame = pd.DataFrame({"a": ["x", "?", "y"], "b": [1, -999, 2]})
    write_chunks([frame], tmp_path / name)
    assert read_table(tmp_path / name)["a"].tolist() == ["x", "?", "y"]
    for read in (
        read_table(tmp_path / name, missing_values=["?", -999]),
        next(read_chunks(tmp_path / name, rows=9, missing_values=["?", -999])),
    ):
        assert read.isna().to_numpy().tolist() == [[0, 0], [1, 1], [0, 0]]


def test_chunks_with_other_dtypes_are_read_alike(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,x\n2,y\n,1\n4,2\n")
    table = TableSchema.infer(read_table(tmp_path / "t.csv"), types={"b": "category"})
    whole, _ = table.encode(read_table(tmp_path / "t.csv"))
    parts = [table.encode(chunk)[0] for chunk in read_chunks(tmp_path / "t.csv", rows=2)]
    assert torch.equal(torch.cat(parts), whole)


BROKEN = {
    "empty.csv": (b"", "cannot be read as a table"),
    "ragged.csv": (b"a,b\n1,2,3,4\n1\n1,2,3,4,5\n", "ragged.csv"),
    "wide.csv": (b"a,b\n1,2,3\n4,5,6\n", "more cells than its header"),
    "plain.csv.gz": (b"a,b\n1,2\n", "cannot be read as a table"),
    "latin.csv": ("a\n\xe9\n".encode("latin1"), "is not UTF-8 text"),
    "no.parquet": (b"text", "cannot be read as a table"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_damaged_files_are_one_sentence(name, tmp_path):
    content, sentence = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    for read in (read_table, lambda path: list(read_chunks(path, rows=2))):
        with pytest.raises(SchemaError) as caught:
            read(tmp_path / name)
        assert sentence in str(caught.value)


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "t.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    for use in (read_table, lambda path: write_chunks([FRAME], path)):
        with pytest.raises(ConfigError) as caught:
            use(tmp_path / "t.parquet")
        assert 'pip install "anyorder[parquet]"' in str(caught.value)


def test_decimals_of_a_file_are_the_doubles_of_python(tmp_path):
    with gzip.open(tmp_path / "t.csv.gz", "wt") as file:
        file.write("a\n0.1\n1e-300\n123456.789012\n")
    assert read_table(tmp_path / "t.csv.gz")["a"].tolist() == [0.1, 1e-300, 123456.789012]


@pytest.mark.parametrize("dtype", ["int64", "float64", "Int8"])
def test_flags_are_categories_that_stay_numbers(dtype):
    frame = pd.DataFrame({"flag": pd.Series([0, 1, 1, 0], dtype=dtype), "count": [0, 1, 2, 0]})
    table = TableSchema.infer(frame)
    assert [line.kind for line in table.summary()] == ["category", "number"]
    pd.testing.assert_frame_equal(table.decode(*table.encode(frame)), frame)


def test_times_that_are_gaps_throughout_are_gaps():
    """As files have them: a column without any cell is read as numbers."""
    days = pd.DataFrame({"born": pd.date_range("2024-01-01", periods=9), "age": range(9)})
    days["took"] = days.born - days.born[0]
    table = TableSchema.infer(days)
    _, missing = table.encode(days.assign(born=np.nan, took=np.nan))
    assert missing.tolist() == [[True, False, True]] * 9


def test_an_order_names_a_column_once():
    with pytest.raises(SchemaError, match="`order` must name each column once"):
        TableSchema.infer(FRAME, order=["age", "age"])
