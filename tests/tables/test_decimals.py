"""Whether 1.234 is 1234: by the column, the other columns, a model, or what was said."""

import numpy as np
import pandas as pd
import pytest

import anyorder
from anyorder.cli.app import main
from anyorder.errors import ConfigError, SchemaError
from anyorder.tables.files import read_chunks, read_table
from anyorder.tables.model import read_table_notes
from anyorder.tables.schema import TableSchema

TINY = ["--steps", "2", "--layers", "1", "--width", "16", "--heads", "2"]

READ = {
    "grouped by another column": ("a;b\n964;3,5\n1.365;2\n", {"a": [964, 1365]}),
    "a column by itself": ("a;b\n7.876;3,5\n7.5;2\n", {"a": [7.876, 7.5], "b": [3.5, 2]}),
    "points elsewhere group commas": ("a;b\n50,876;54.15\n900;1\n", {"a": [50876, 900]}),
    "a list among words": ("a;b;c\n50,876;54.15;1,2\n9;1;x\n9;1;y\n", {"a": [50876, 9, 9]}),
    "nothing tells": ("a;b\n964;1\n7.141;2\n", {"a": [964, 7.141]}),
    "thousands twice": ("a;b\n1.234.567;1.250\n2;3\n", {"a": [1234567, 2], "b": [1250, 3]}),
    "spaces": ("a;b\n7 876,63;1 234\n7\u202f000;2\n", {"a": [7876.63, 7000], "b": [1234, 2]}),
    "apostrophes": ("a;b\n7'876.63;1\n8;2\n", {"a": [7876.63, 8]}),
    "contrary columns": ("a;b;c\n3,5;0.5;1\n4;1;2\n", {"a": [3.5, 4], "b": [0.5, 1], "c": [1, 2]}),
    "gaps": ("a;b\nNA;3,5\n1.365;\n", {"b": [3.5, np.nan]}),
}


@pytest.mark.parametrize("name", READ)
def test_what_is_read(name, tmp_path):
    text, expected = READ[name]
    (tmp_path / "t.csv").write_text(text)
    frame = read_table(tmp_path / "t.csv")
    chunks = pd.concat(read_chunks(tmp_path / "t.csv", rows=1))
    for column, values in expected.items():
        np.testing.assert_array_equal(frame[column].astype(float), values)
        np.testing.assert_array_equal(chunks[column].astype(float), values)


REFUSED = {
    "contrary columns": (
        "umsatz;preis;x\n964;3,5;1\n1.365;2;0.5\n",
        r"\"umsatz\" holds '1.365' \(row 1\), which may be 1365 or 1.365: \"preis\" holds '3,5' "
        r"\(row 0\), but \"x\" '0.5' \(row 1\). Give the decimal .*--decimal ,",
    ),
    "a list": ("pop\tprice\tx\n50,876\t54.15\t1,2\n", "\"pop\" holds '50,876'"),
    "a contrary cell": ("a;b\n3,5;1\n0.5;2\n", r"\"a\" has decimal commas elsewhere, but .*'0.5'"),
    "after the first rows": (
        "a;b;c\n" + "3,5;0.5;1\n" * 1000 + "3,5;0.5;1.234\n",
        r"\"c\" does not show its decimal separator, but holds '1.234' \(row 1000\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name, tmp_path):
    text, sentence = REFUSED[name]
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(SchemaError, match=sentence):
        read_table(tmp_path / "t.csv")


def test_what_is_said_decides(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("umsatz;preis;x\n964;3,5;1\n1.365;2;0.5\n")
    assert read_table(file, decimal=",")["umsatz"].tolist() == [964, 1365]
    points = read_table(file, decimal=".")
    assert points["umsatz"].tolist() == [964, 1.365]
    assert points["preis"].tolist() == [3.5, 2]
    assert read_table(file, text=["x"])["umsatz"].tolist() == [964, 1365]
    with pytest.raises(ConfigError, match=r"`decimal` must be"):
        read_table(file, decimal=";")
    file.write_text("a,b\n1.365,2\n")
    with pytest.raises(ConfigError, match="commas between its cells"):
        read_table(file, decimal=",")


LATER = {
    "it does not tell": ("1.234;5\n2.500;7\n", [1234, 2500]),
    "it tells the same": ("1.234;5,5\n2.500;7\n", [1234, 2500]),
    "the column tells another": ("1.234;5\n2.5;7\n", [1.234, 2.5]),
}


@pytest.mark.parametrize("name", LATER)
def test_a_later_file_is_read_as_in_training(name, tmp_path):
    rows, expected = LATER[name]
    (tmp_path / "t.csv").write_text("umsatz;preis\n1.234;3,5\n964;2\n")
    decimals = read_table(tmp_path / "t.csv").attrs["decimals"]
    (tmp_path / "later.csv").write_text(f"umsatz;preis\n{rows}")
    (chunk,) = read_chunks(tmp_path / "later.csv", rows=9, decimals=decimals)
    assert chunk["umsatz"].tolist() == expected


def test_a_later_file_that_contradicts_is_refused(tmp_path):
    (tmp_path / "later.csv").write_text("umsatz;preis\n1.234;5.5\n")
    with pytest.raises(SchemaError, match=r"1234 as in training or 1.234, because \"preis\" holds"):
        list(read_chunks(tmp_path / "later.csv", rows=9, decimals={"umsatz": ",", "preis": ","}))
    (tmp_path / "later.csv").write_text("umsatz;preis\n1234;5.5\n")
    (chunk,) = read_chunks(tmp_path / "later.csv", rows=9, decimals={"umsatz": ","})
    assert chunk["preis"].tolist() == [5.5]


def test_models_of_earlier_versions_know_no_decimals(tmp_path):
    (tmp_path / "t.csv").write_text("umsatz;preis\n1.234;3,5\n964;2\n")
    table = TableSchema.infer(read_table(tmp_path / "t.csv"))
    assert table.decimals == {"umsatz": ",", "preis": ","}
    assert TableSchema.from_description(table.describe()) == table
    earlier = {key: value for key, value in table.describe().items() if key != "decimals"}
    assert TableSchema.from_description(earlier).decimals == {}


def test_the_verbs_read_a_later_file_as_the_first(tmp_path, capsys):
    rng = np.random.default_rng(0)
    sales = rng.integers(100, 9000, 80)
    shown = [f"{value:,}".replace(",", ".") for value in sales]
    rows = [f"{text};{value % 7},5" for text, value in zip(shown, sales, strict=True)]
    file, run = tmp_path / "de.csv", tmp_path / "run"
    file.write_text("\n".join(["umsatz;preis", *rows]) + "\n")
    main(["fit", str(file), "--out", str(run), *TINY])
    told = " ".join(capsys.readouterr().err.split())
    assert 'warning: in "umsatz" ' in told
    assert "--decimal ." in told
    assert anyorder.load(run).table_.decimals == {"umsatz": ",", "preis": ","}
    later, filled = tmp_path / "de2.csv", tmp_path / "filled.csv"
    later.write_text("umsatz;preis\n1.234;5\n2.500;\n")
    main(["impute", str(run), str(later), "--out", str(filled)])
    frame = read_table(filled)
    assert frame["umsatz"].tolist() == [1234, 2500]
    assert "," in filled.read_text()
    main(["score", str(run), str(later), "--out", str(tmp_path / "scores.csv")])
    main(["evaluate", str(run), str(later)])


def test_fit_says_what_nothing_tells(tmp_path, capsys):
    file = tmp_path / "t.csv"
    file.write_text("a;b\n" + "".join(f"{i % 7 + 1}.{i % 9}41;{i % 5}\n" for i in range(60)))
    command = ["fit", str(file), "--out", str(tmp_path / "run"), *TINY, "--overwrite"]
    main(command)
    told = " ".join(capsys.readouterr().err.split())
    assert 'nothing in the file shows whether in "a" 1.041 is 1.041 or 1041' in told
    assert anyorder.load(tmp_path / "run").table_.decimals == {"a": "."}
    main([*command, "--decimal", ","])
    assert "nothing in the file shows" not in capsys.readouterr().err
    assert anyorder.load(tmp_path / "run").table_["a"].seen[0] > 1000


@pytest.mark.parametrize("cell", ["1.234,5", "7 876,63", "3,5", "1,234"])
def test_no_advice_loses_numbers(cell):
    frame = pd.DataFrame({"a": ["1", "2", "3", cell]})
    for types in ({}, {"a": "number"}):
        with pytest.raises(
            SchemaError, match=r"Write .*alike|Write decimals with a point"
        ) as error:
            TableSchema.infer(frame, types=types)
        assert "gap" not in str(error.value)


def test_notes_with_other_signs_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text("umsatz;preis\n1.234;3,5\n964;2\n")
    table = TableSchema.infer(read_table(tmp_path / "t.csv"))
    noted = {**table.describe(), "decimals": {"preis": "x"}}
    with pytest.raises(SchemaError, match="other signs"):
        read_table_notes(noted, table.schema)
