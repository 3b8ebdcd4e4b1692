"""Dates by day and month: told by the column or declared, asked and written in the same form."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from anyorder.cli.app import main
from anyorder.errors import QueryError, SchemaError
from anyorder.tables.columns import CategoryColumn
from anyorder.tables.parsing import as_iso, form_of, in_form, possible_orders
from anyorder.tables.schema import TableSchema
from anyorder.tables.type_inference import infer_column

DAYS = pd.Series(pd.date_range("2022-01-01", periods=90), name="born")
TINY = ["--steps", "2", "--layers", "1", "--width", "16", "--heads", "2"]

FORMS = {
    "dd.mm.yyyy": "%d.%m.%Y",
    "dd/mm/yyyy": "%d/%m/%Y",
    "mm/dd/yyyy": "%m/%d/%Y",
    "dd-mm-yyyy HH:MM": "%d-%m-%Y %H:%M",
    "dd.mm.yyyy HH:MM:SS": "%d.%m.%Y %H:%M:%S",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_told_by_its_column_and_written_back(form):
    times = DAYS + pd.Timedelta(hours=7) * (1 if "HH" in form else 0)
    text = times.dt.strftime(FORMS[form])
    (order,) = possible_orders(text.tolist())
    assert form_of(text.tolist(), order) == form
    assert in_form(times, form).tolist() == text.tolist()
    column = infer_column(text)
    assert column.measurement.form == form
    assert form in column.summary
    codes, missing = column.encode(text)
    assert not missing.any()
    assert column.decode(codes).tolist() == times.tolist()
    assert (column.encode(times.dt.strftime("%Y-%m-%dT%H:%M:%S"))[0] == codes).all()


def test_days_without_zeros_and_gaps():
    text = pd.Series(["5.1.2022", None, "22.11.2022 9:05"], name="born")
    column = infer_column(text)
    assert column.measurement.form == "d.m.yyyy HH:MM"
    times = column.decode(*column.encode(text))
    assert in_form(times, column.measurement.form).tolist()[::2] == [
        "5.1.2022 00:00",
        "22.11.2022 09:05",
    ]
    assert in_form(times, column.measurement.form).isna().tolist() == [False, True, False]


def test_what_does_not_tell_is_declared():
    text = pd.Series(["05/11/2022", "06/12/2022", "07/01/2022"], name="born")
    assert isinstance(infer_column(text), CategoryColumn)
    with pytest.raises(
        SchemaError, match=r'Declare it as "dmy" or "mdy" \(types, --types born=dmy'
    ):
        infer_column(text, declared="datetime")
    for order, first in (("dmy", "2022-11-05"), ("mdy", "2022-05-11")):
        column = infer_column(text, declared=order)
        assert str(column.decode(column.encode(text[:1])[0])[0].date()) == first
    points = infer_column(text.str.replace("/", "."), declared="datetime")
    assert points.measurement.form == "dd.mm.yyyy"


def test_dates_that_do_not_fit_are_named():
    odd = pd.Series(["22/11/2022", "23/11/2022", "11/24/2022"], name="born")
    assert possible_orders(odd.tolist()) == []
    for declared in ("datetime", "dmy"):
        with pytest.raises(
            SchemaError, match=r"as 31/05/2024 or 2024-05-31; got '11/24/2022' \(row"
        ):
            infer_column(odd, declared=declared)
    with pytest.raises(SchemaError, match=r"got '31\.02\.2022'"):
        infer_column(pd.Series(["31.02.2022", "28.02.2022"], name="born"), declared="datetime")
    column = infer_column(DAYS.dt.strftime("%d.%m.%Y"))
    with pytest.raises(QueryError, match=r"dates as 31\.05\.2024 or 2024-05-31; got '5/6/2"):
        column.encode(pd.Series(["5/6/2022"]))
    assert as_iso("5/6/2022", "dd.mm.yyyy") == "5/6/2022"


@pytest.mark.parametrize("odd", ["23.11.2022 24:00", "23.11.2022 10:61"])
def test_a_clock_that_there_is_not_is_named_as_it_is_written(odd):
    text = pd.Series(["22.11.2022 14:30", odd], name="born")
    with pytest.raises(SchemaError, match=rf"as 31\.05\.2024 18:00 .*; got '{odd}' \(row 1\)"):
        infer_column(text)
    with pytest.raises(QueryError, match=f"got '{odd}'"):
        infer_column(text[:1]).encode(text)


def test_a_schema_of_dates_is_read_back():
    table = TableSchema.infer(pd.DataFrame({"born": DAYS.dt.strftime("%d.%m.%Y")}))
    again = TableSchema.from_description(json.loads(json.dumps(table.describe())))
    assert again == table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table with dates that have the day first, some of them missing, and its model."""
    folder = tmp_path_factory.mktemp("dates")
    frame = pd.DataFrame({"born": DAYS.dt.strftime("%d.%m.%Y"), "size": np.arange(90) % 7 / 4})
    frame.loc[::3, "born"] = None
    frame.to_csv(folder / "x.csv", index=False)
    main(["fit", str(folder / "x.csv"), "--out", str(folder / "run"), *TINY])
    return folder


def test_files_keep_the_form(folder, tmp_path):
    before = pd.read_csv(folder / "x.csv", dtype=str)["born"]
    main(["impute", str(folder / "run"), str(folder / "x.csv"), "--out", str(tmp_path / "f.csv")])
    after = pd.read_csv(tmp_path / "f.csv", dtype=str)["born"]
    assert after.str.fullmatch(r"\d\d\.\d\d\.\d{4}").all()
    assert (after[before.notna()] == before.dropna()).all()
    main(["sample", str(folder / "run"), "--n", "5", "--out", str(tmp_path / "s.csv")])
    drawn = pd.read_csv(tmp_path / "s.csv", dtype=str)["born"]
    assert drawn.str.fullmatch(r"\d\d\.\d\d\.\d{4}").all()
    main(["sample", str(folder / "run"), "--n", "5", "--out", str(tmp_path / "s.parquet")])
    assert pd.read_parquet(tmp_path / "s.parquet")["born"].dtype.kind == "M"


CELLS = {
    "22.01.2022 14:30": "22.01.2022 14:30",
    "2022-01-22 09:15:30": "22.01.2022 09:15:30",
    "2022-01-22T00:00:00.250": "2022-01-22 00:00:00.250000",
    "2022-01-22": "22.01.2022",
}


def test_known_cells_keep_their_clock(folder, tmp_path):
    source, target = tmp_path / "x.csv", tmp_path / "f.csv"
    pd.DataFrame({"born": list(CELLS), "size": 0.5}).to_csv(source, index=False)
    for _ in range(2):  # what was written is read alike
        main(["impute", str(folder / "run"), str(source), "--out", str(target)])
        assert pd.read_csv(target, dtype=str)["born"].tolist() == list(CELLS.values())
        source, target = target, tmp_path / "again.csv"


def test_a_table_of_days_and_one_time_is_written_back(tmp_path):
    born = [*DAYS[:30].dt.strftime("%d.%m.%Y"), "2022-11-22 09:15:30"]
    pd.DataFrame({"born": born, "size": 0.5}).to_csv(tmp_path / "x.csv", index=False)
    run, file, out = (str(tmp_path / name) for name in ("run", "x.csv", "f.csv"))
    main(["fit", file, "--out", run, "--types", "born=dmy", *TINY])
    main(["impute", run, file, "--out", out])
    assert pd.read_csv(out, dtype=str)["born"].tolist() == [*born[:-1], "22.11.2022 09:15:30"]


def test_questions_take_the_form_and_iso(folder, capsys):
    answers = []
    for day in ("22.01.2022", "2022-01-22", "01.01.2022..31.01.2022"):
        main(["query", str(folder / "run"), "--of", "size", "--given", f"born={day}", "--json"])
        answers.append(json.loads(capsys.readouterr().out)["columns"])
    assert answers[0] == answers[1] != answers[2]
    main(["sample", str(folder / "run"), "--n", "2", "--given", "born=22.01.2022"])
    assert len(re.findall(r"│ 22\.01\.2022 │", capsys.readouterr().out)) == 2


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("2021", "a day, born=2021-01-01, or an interval, born=2021-01-01..2021-12-31."),
        ("2024-02", "a day, born=2024-02-01, or an interval, born=2024-02-01..2024-02-29."),
        ("2021..2022", "a day, born=2021-01-01, or an interval, born=2021-01-01..2021-12-31."),
    ],
)
def test_a_year_is_no_day(folder, capsys, given, sentence):
    with pytest.raises(SystemExit) as stopped:
        main(["query", str(folder / "run"), "--of", "size", "--given", f"born={given}"])
    assert stopped.value.code == 2
    assert sentence in capsys.readouterr().err
