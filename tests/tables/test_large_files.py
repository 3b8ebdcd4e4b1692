"""Files that are read in chunks: all rows are trained on, columns come from a sample of them."""

import numpy as np
import pandas as pd
import pytest

from anyorder.cli.app import main
from anyorder.errors import ConfigError
from anyorder.tables import large_files
from anyorder.tables.csv_dialect import CsvHints
from anyorder.tables.fitting import table_queries
from anyorder.tables.large_files import TableFile
from anyorder.tables.model import TableModel
from anyorder.tables.schema import TableSchema
from anyorder.training.batches import RowPrint

ROWS = 500


def quick(**options):
    return TableModel(layers=1, width=4, max_steps=3, progress=False, **options)


@pytest.fixture
def frame():
    """Numbers with missing values, and a category with a level of one row near the end."""
    rng = np.random.default_rng(0)
    job = rng.choice(["clerk", "nurse"], ROWS).astype(object)
    job[ROWS - 7] = "judge"
    age = rng.integers(18, 80, ROWS).astype(float)
    age[::9] = np.nan
    return pd.DataFrame({"age": age, "income": rng.normal(9, 1, ROWS).round(3), "job": job})


@pytest.fixture
def small(monkeypatch):
    """Makes large files of small ones: chunks have 40 rows, and the sample 100."""
    for name, cells in (("LARGE", 300), ("CHUNK_CELLS", 120), ("SAMPLED", 300)):
        monkeypatch.setattr(large_files, name, cells)


@pytest.fixture(params=["csv", "parquet"])
def path(request, frame, tmp_path):
    file = tmp_path / f"rows.{request.param}"
    frame.to_csv(file, index=False) if request.param == "csv" else frame.to_parquet(file)
    return file


def test_a_small_file_is_fitted_as_its_frame(path, frame):
    one, other = quick().fit(path), quick().fit(frame)
    assert one.trained_on_ == other.trained_on_
    np.testing.assert_array_equal(one.log_prob(frame), other.log_prob(frame))


@pytest.mark.usefixtures("small")
def test_every_row_is_read_in_chunks_and_held_out_or_trained_on(path, frame):
    file = TableFile(path)
    sample = file.frame(seed=0)
    assert sample.attrs["rows"] == ROWS
    assert 100 <= len(sample) <= 103
    assert {"judge", "nurse", "clerk"} == {*sample["job"]}
    table = TableSchema.infer(sample)
    table, data, held_out, seen = file.encoded(table, table_queries(3), ROWS, held_out=0.1, seed=0)
    assert (len(data.x), len(held_out.x)) == (ROWS - 50, 50)
    expected = RowPrint()
    expected.add(*table.encode(frame))
    assert seen == expected
    ends = frame["income"].min(), frame["income"].max()
    assert table["income"].seen == pytest.approx(ends)  # codes are of single precision
    assert (data.have != data.missing).all()
    assert len(data.sampled(0).x) == 100
    assert len(data.rows(table_queries(3), 0)) == ROWS - 50


@pytest.mark.usefixtures("small")
def test_rows_of_which_nothing_is_asked_are_left_out(frame, tmp_path):
    frame.iloc[:200] = None
    frame.to_parquet(tmp_path / "rows.parquet")
    file = TableFile(tmp_path / "rows.parquet")
    table = TableSchema.infer(file.frame(seed=0))
    _, data, _, _ = file.encoded(table, table_queries(3), ROWS, held_out=0.0, seed=0)
    assert len(data.x) == ROWS - 200


@pytest.mark.usefixtures("small")
def test_a_large_file_is_fitted_and_its_model_answers(path, frame):
    model = quick().fit(path)
    assert model.rows_ is None
    assert np.isfinite(model.log_prob(frame)).all()
    assert quick().fit(path).trained_on_ == model.trained_on_


@pytest.mark.usefixtures("small")
def test_decimals_of_a_large_file_are_kept(tmp_path):
    lines = [f"{i},5;{i % 7}" for i in range(ROWS)]
    (tmp_path / "rows.csv").write_text("\n".join(["size;day", *lines]))
    model = quick().fit(tmp_path / "rows.csv")
    assert model.table_.decimals["size"] == ","
    assert model.table_["size"].seen == pytest.approx((0.5, ROWS - 0.5), abs=1e-3)


@pytest.mark.usefixtures("small")
def test_the_command_line_fits_a_large_file(path, tmp_path, capsys):
    main(["fit", str(path), "--out", str(tmp_path / "run"), "--steps", "3"])
    assert f"{ROWS} rows" in capsys.readouterr().err
    assert TableModel.load(tmp_path / "run").trained_on_["rows"] == ROWS


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("options", [{"y": [1] * ROWS}, {"sample_weight": [1] * ROWS}])
def test_what_needs_rows_in_memory_is_refused(path, options):
    with pytest.raises(ConfigError, match="need rows in memory"):
        quick().fit(path, **options)


def test_text_that_names_no_file_is_refused():
    with pytest.raises(ConfigError, match='parquet file; got "no table"'):
        quick().fit("no table")


@pytest.mark.usefixtures("small")
def test_missing_depending_on_others_is_refused(path):
    with pytest.raises(ConfigError, match="needs rows in memory"):
        quick(missing="mar").fit(path)


@pytest.mark.usefixtures("small")
def test_columns_of_text_are_kept_verbatim(tmp_path):
    lines = [f"0{i % 3},{i}" for i in range(ROWS)]
    (tmp_path / "rows.csv").write_text("\n".join(["zip,size", *lines]))
    sample = TableFile(tmp_path / "rows.csv", CsvHints(text=["zip"])).frame(seed=0)
    assert {*sample["zip"]} == {"00", "01", "02"}
