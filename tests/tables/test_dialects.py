"""Files with semicolons, tabs or bars, and with decimal commas."""

import gzip

import numpy as np
import pandas as pd
import pytest

from anyorder.cli.app import main
from anyorder.errors import SchemaError
from anyorder.tables.csv_dialect import NO_HINTS, dialect_of
from anyorder.tables.files import read_chunks, read_table, read_written, write_chunks
from anyorder.tables.type_inference import column_type

DIALECTS = {
    "plain": ("a,b\n1.5,x\n", ",", {}),
    "semicolons": ("a;b\n1;x\n", ";", {}),
    "commas in a quoted header": ('a;"b, c"\n1;x\n', ";", {}),
    "commas in a bare header": ("a;b, c\n1;x\n2;y\n", ";", {}),
    "decimal commas": ("a;b\n1,5;x\n-0,125;y\n", ";", {"a": ","}),
    "tabs": ("a\tb\n1,5\tx\n", "\t", {"a": ","}),
    "bars": ("a|b\n1.5|x\n", "|", {"a": "."}),
    "grouped": ("a;b\n1.234,5;1.000\n", ";", {"a": ",", "b": ","}),
    "both": ("a;b\n1,5;1.25\n", ";", {"a": ",", "b": "."}),
    "only three digits": ("a;b\n1,234;x\n", ";", {}),
    "a word that looks like one": ("a;b\n1.5;1,2\n2.5;x\n3;y\n", ";", {"a": "."}),
    "a list between commas": ('a,b\n"1,2",x\n', ",", {}),
    "semicolons in the cells": ("a,b\nx;y;z,1\n", ",", {}),
    "semicolons in the header": ("a;x,b\n1,2\n", ",", {}),
    "semicolons in a quoted name": ('"a; b"\n1\n2\n', ",", {}),
    "lines in quotes": ('a;b\n"x\ny;z";1,5\n', ";", {"b": ","}),
    "no rows": ("a;b\n", ";", {}),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_the_first_lines_tell_the_dialect(name, tmp_path):
    text, separator, signs = DIALECTS[name]
    file = tmp_path / "t.csv"
    file.write_text(text)
    found = dialect_of(file, ",")
    assert (found.separator, found.decimals.signs) == (separator, signs)


def test_lines_that_nothing_divides_alike_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text("a;b\n1;2;3\n")
    with pytest.raises(SchemaError, match="no commas in its first line, but semicolons"):
        read_table(tmp_path / "t.csv")


SALES = """\
Datum;Größe;Umsatz;Filiale;PLZ;Notiz
2024-01-05;176,6;1.234,50;101;01234;a,b
2024-01-06;;999,00;205;80331;c
2024-01-07;180,25;12.000,75;101;10115;
"""


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_european_files_are_read_whole_and_in_chunks(name, tmp_path):
    file = tmp_path / name
    file.write_bytes(gzip.compress(SALES.encode()) if name.endswith("gz") else SALES.encode())
    frame = read_table(file)
    assert frame["Größe"].tolist()[::2] == [176.6, 180.25]
    assert frame["Umsatz"].tolist() == [1234.5, 999, 12000.75]
    assert frame["Filiale"].tolist() == [101, 205, 101]
    assert frame["PLZ"].tolist() == ["01234", "80331", "10115"]
    assert frame["Notiz"].tolist()[:2] == ["a,b", "c"]
    parts = pd.concat(read_chunks(file, rows=1, text=["PLZ", "Notiz"]))
    assert parts["Umsatz"].astype(float).tolist() == frame["Umsatz"].tolist()
    kept = read_table(file, text=["Umsatz", "Größe"])
    assert kept["Umsatz"].tolist()[0] == "1.234,50"
    assert kept["Größe"].tolist()[0] == "176,6"


def test_a_word_among_decimal_commas_is_found(tmp_path):
    (tmp_path / "t.csv").write_text("a;b\n1,5;x\nalt;y\n2,5;z\n")
    with pytest.raises(SchemaError, match="looks like numbers but holds 'alt'"):
        column_type(read_table(tmp_path / "t.csv")["a"])


def test_points_beside_commas_stay_decimals(tmp_path):
    (tmp_path / "t.csv").write_text("a;b\n1,5;1.125\n2,5;2.5\n")
    assert column_type(read_table(tmp_path / "t.csv")["b"]) == "number"


def test_files_are_written_like_the_one_read_if_they_end_alike(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text(SALES)
    frame = read_table(file)
    write_chunks([frame], tmp_path / "same.csv", like=file)
    dialect = read_written(tmp_path / "same.csv", NO_HINTS)[1]
    assert (dialect.separator, dialect.decimal) == (";", ",")
    pd.testing.assert_frame_equal(read_table(tmp_path / "same.csv"), frame)
    write_chunks([frame], tmp_path / "other.tsv", like=file)
    dialect = read_written(tmp_path / "other.tsv", NO_HINTS)[1]
    assert (dialect.separator, dialect.decimal) == ("\t", ".")


def test_the_verbs_read_and_write_decimal_commas(tmp_path, capsys):
    rng = np.random.default_rng(0)
    size = rng.normal(170, 10, 80).round(1)
    frame = pd.DataFrame({"Größe": size, "Gewicht": (size - 100).round(1), "Tag": ["a", "b"] * 40})
    frame.loc[::9, "Gewicht"] = np.nan
    file, run = tmp_path / "verkäufe.csv", tmp_path / "run"
    frame.to_csv(file, sep=";", decimal=",", index=False)
    tiny = ["--steps", "2", "--layers", "1", "--width", "16", "--heads", "2"]
    main(["fit", str(file), "--out", str(run), *tiny])
    assert "80 rows (semicolons between cells, decimal commas)" in capsys.readouterr().err
    main(["impute", str(run), str(file), "--out", str(tmp_path / "filled.csv")])
    filled = pd.read_csv(tmp_path / "filled.csv", sep=";", decimal=",")
    assert filled["Größe"].tolist() == frame["Größe"].tolist()
    assert filled["Gewicht"].notna().all()
    main(["score", str(run), str(file), "--out", str(tmp_path / "scores.csv")])
    assert pd.read_csv(tmp_path / "scores.csv", sep=";", decimal=",")["log_prob"].dtype == float
    main(["evaluate", str(run), str(file)])
