"""The verbs for tables at their smallest; every mistake gets one sentence."""

import io
import json
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import anyorder
from anyorder.cli.app import main
from anyorder.cli.runs import finished_step
from anyorder.errors import CheckpointError, SchemaError
from anyorder.inference.queries import SoftEvidence
from anyorder.tables.ensemble import members_of
from anyorder.tables.files import read_table, write_chunks
from anyorder.tables.questions import quoted, read_given, read_queries, written_given
from anyorder.tables.schema import TableSchema
from anyorder.tables.scoring import RunningMean

TINY = ["--steps", "3", "--layers", "1", "--width", "16", "--heads", "2"]
DECLARED = ["--types", "zip=category,id=ignore", "--missing-values", "?,-999"]


def people(rows=100):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "id": [f"{i:04d}" for i in range(rows)],
            "age": rng.integers(18, 80, rows),
            "account": rng.integers(10**8, 10**9, rows),
            "income": rng.lognormal(10, 1, rows).round(2),
            "job": rng.choice(["nurse", "clerk", "baker, head"], rows),
            "zip": rng.choice(["01234", "00501", "90210"], rows),
            "smoker": rng.random(rows) < 0.3,
            "born": pd.to_datetime("1990-01-01")
            + pd.to_timedelta(rng.integers(0, 10**8, rows), "s"),
        }
    )


def with_gaps(frame):
    gappy = frame.copy()
    gappy["age"] = gappy["age"].astype("Int64")
    gappy.loc[::5, "age"] = pd.NA
    gappy.loc[1::5, "job"] = None
    gappy.loc[2::7, "income"] = np.nan
    return gappy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    people().to_csv(folder / "people.csv", index=False)
    with_gaps(people()).to_csv(folder / "gaps.csv.gz", index=False)
    with_gaps(people()).to_csv(folder / "gaps.csv", index=False)
    people().drop(columns="id").to_parquet(folder / "people.parquet")
    with_gaps(people()).drop(columns="id").to_parquet(folder / "gaps.parquet")
    return folder


@pytest.fixture(scope="module")
def run(folder):
    main(["fit", str(folder / "gaps.csv"), "--out", str(folder / "run"), *DECLARED, *TINY])
    return folder / "run"


@pytest.fixture(scope="module")
def parquet_run(folder):
    main(["fit", str(folder / "people.parquet"), "--out", str(folder / "parquet_run"), *TINY])
    return folder / "parquet_run"


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr("anyorder.tables.cli.ROWS_AT_ONCE", 14)
    monkeypatch.setattr("anyorder.tables.scoring.ROWS_AT_ONCE", 7)


def last_json(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_fit_says_what_columns_are_and_what_to_try(folder, tmp_path, capsys):
    command = ["fit", str(folder / "gaps.csv.gz"), "--out", str(tmp_path / "run"), *DECLARED, *TINY]
    main([*command, "--context", "smoker"])
    shown = capsys.readouterr().err
    assert re.search(r"gaps.csv.gz: 100 rows", shown)
    assert re.search(r"zip +│ category +│ 3 levels", shown)
    assert re.search(r"id +│ ignored +│ its type is ignore", shown)
    assert re.search(r"age +│ number +│ whole, 20% missing", shown)
    assert re.search(r"10 held-out rows: -\d+\.\d+ ± \d+\.\d+ nats a row", shown)
    query, impute = (line for line in shown.splitlines() if line.startswith("  anyorder "))
    assert re.search(r"--of \w+ --given smoker=", query)
    assert re.search(r"`anyorder evaluate .*run new.csv` and `anyorder check", shown)
    main(shlex.split(query)[1:])
    main(shlex.split(impute)[1:])
    assert read_table(folder / "filled-gaps.csv.gz").notna().all().all()


def test_the_same_fit_goes_on_and_another_is_refused(folder, run, capsys):
    main(["fit", str(folder / "gaps.csv"), "--out", str(run), *DECLARED, *TINY])
    assert "Saved in" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["fit", str(folder / "people.csv"), "--out", str(run), *DECLARED, *TINY])
    assert stopped.value.code == 2
    assert "holds an earlier training" in capsys.readouterr().err


@pytest.mark.filterwarnings("default:the training of")
def test_a_small_table_gets_several_models(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("anyorder.tables.ensemble.STEPS", 1)
    command = ["fit", str(folder / "people.csv"), "--out", str(tmp_path), *DECLARED]
    command += ["--minutes", "0.005", *TINY[2:]]
    main(command)
    assert "model 2 of 2, to be averaged" in capsys.readouterr().err
    main(command)
    assert "Already trained (step " in capsys.readouterr().err
    whole = anyorder.load(tmp_path)
    assert len(members_of(whole.model_)) == 2
    (tmp_path / "model.json").unlink()  # as if it had been stopped before it was saved
    assert len(members_of(anyorder.load(tmp_path).model_)) == 1
    capsys.readouterr()
    main(["query", str(tmp_path), "--of", "age"])
    assert "was stopped before its end" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "training" / "member-1")
    assert finished_step(tmp_path / "training") is None


def test_what_names_rows_is_left_out_and_told(folder, tmp_path, capsys):
    command = ["fit", str(folder / "people.csv"), "--out", str(tmp_path / "a"), *TINY]
    main(command)
    shown = capsys.readouterr().err
    assert '"id" only identifies rows' in shown
    assert "--types id=category keeps it" in shown
    assert "id" not in anyorder.load(tmp_path / "a").table_.names
    main(command)
    assert "Already trained" in capsys.readouterr().err
    main(["evaluate", str(tmp_path / "a"), str(folder / "people.csv"), "--json"])
    assert last_json(capsys)["rows"] == 100
    asked = ["fit", str(folder / "people.csv"), "--out", str(tmp_path / "b"), *TINY]
    main([*asked, "--queries", "age -> id"])
    assert "which row it is" not in capsys.readouterr().err
    assert "id" in anyorder.load(tmp_path / "b").table_.names


def test_fit_for_stated_questions(folder, tmp_path, capsys):
    asked = "3: age,job -> income; -> age"
    command = ["fit", str(folder / "people.csv"), "--out", str(tmp_path), "--queries", asked]
    main([*command, *DECLARED, *TINY])
    suggested = capsys.readouterr().err.splitlines()[-1]
    values = shlex.split(suggested)[-1]
    assert re.fullmatch(r'age=\d+,job=("baker, head"|nurse|clerk)', values)
    main(shlex.split(suggested)[1:])
    main(["info", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "QueryList: age, job -> income (75%)" in shown
    assert "QueryList: -> age (25%)" in shown
    main(["evaluate", str(tmp_path), str(folder / "people.csv"), "--json"])
    assert "columns" not in last_json(capsys), "the rest of a row is none of its questions"


def test_first_questions_are_about_columns_that_tell_something(tmp_path, capsys):
    frame = people()[["account", "age", "job", "id"]].assign(planet="Earth")
    frame.to_csv(tmp_path / "people.csv", index=False)
    main(["fit", str(tmp_path / "people.csv"), "--out", str(tmp_path / "run"), *TINY])
    query = capsys.readouterr().err.splitlines()[-2]
    assert re.search(r"--of job --given age=\d+$", query)


def test_the_first_question_is_about_columns_that_tell_of_each_other(tmp_path, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.integers(0, 4, 90), "b": rng.integers(0, 4, 90)})
    frame = frame.assign(c=frame["b"] * 2.5 + 0.25, d=rng.integers(0, 4, 90))
    frame.to_csv(tmp_path / "t.csv", index=False)
    main(["fit", str(tmp_path / "t.csv"), "--out", str(tmp_path / "run"), *TINY])
    query = capsys.readouterr().err.splitlines()[-2]
    assert re.search(r"--of c --given b=\d$", query)


def test_times_are_shown_as_times(run, capsys):
    main(["query", str(run), "--of", "born", "--json"])
    found = json.loads(capsys.readouterr().out)["columns"]["born"]
    times = [*found["quantiles"].values(), *found["interval_90"], found["median"]]
    assert all(pd.Timestamp(time).year in range(1980, 2010) for time in times)
    main(["query", str(run), "--of", "born"])
    assert re.search(r"10% quantile │ +19\d\d-\d\d-\d\d \d\d:\d\d:\d\d │", capsys.readouterr().out)


def test_a_doubtful_answer_is_given_with_one_warning(run):
    command = [sys.executable, "-m", "anyorder", "query", str(run), "--of", "job"]
    done = subprocess.run([*command, "--given", "age=200"], capture_output=True, text=True)
    assert done.returncode == 0
    assert re.fullmatch(
        r'warning: "age" was \d+ to \d+ in training: given 200, the model extrapolates\.\n'
        r"Training rows that match the evidence and have a value: 0\.\n",
        done.stderr,
    )
    assert "nurse" in done.stdout


def test_a_list_of_questions_may_begin_with_a_hyphen_and_so_may_a_marker(folder, tmp_path):
    command = ["fit", str(folder / "people.csv"), "--out", str(tmp_path), "--queries", "-> age"]
    main([*command, "--missing-values", "-999", *TINY])
    assert anyorder.load(tmp_path).table_.missing_values == ("-999",)


def test_a_table_can_be_fitted_as_text(folder, tmp_path, capsys):
    command = ["fit", str(folder / "people.csv"), "--as", "text", "--length", "8", *TINY]
    main([*command, "--hole", "#", "--out", str(tmp_path)])
    capsys.readouterr()
    main(["info", str(tmp_path), "--json"])
    about = last_json(capsys)
    assert (about["domain"], about["length"], about["hole"]) == ("text", 8, "#")


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", ["filled.csv", "filled.tsv.gz", "filled.parquet"])
def test_impute_fills_gaps_and_nothing_else(run, tmp_path, capsys, name):
    extra = with_gaps(people()).assign(note="00x")
    extra.to_csv(tmp_path / "gaps.csv", index=False)
    main(["impute", str(run), str(tmp_path / "gaps.csv"), "--out", str(tmp_path / name)])
    gaps = int(with_gaps(people()).isna().sum().sum())
    assert f"Imputed {gaps} missing values in 100 rows" in capsys.readouterr().err
    found = read_table(tmp_path / name, text=["id", "zip", "note"])
    assert found.columns.tolist() == extra.columns.tolist()
    assert found.notna().all().all()
    for column in extra.columns:
        there = extra[column].notna()
        values = pd.to_datetime(found[column]) if column == "born" else found[column]
        assert (values[there] == extra[column][there]).all(), column
    assert not list(tmp_path.glob(".new-*"))


@pytest.mark.usefixtures("small_chunks")
def test_columns_that_the_model_leaves_out_come_back_as_they_were(run, tmp_path):
    odd = ["NA", "?", "-999", "", "007", "1.50", "null", "1e3"]
    rows = people(40).assign(id=odd * 5, other=[*odd[1:], "NA"] * 5, age=[None, 30] * 20)
    rows = rows[["job", "other", "age", "income", "id", "zip", "smoker", "born", "account"]]
    rows.to_csv(tmp_path / "odd.csv", index=False)
    out, read = tmp_path / "filled.csv", {"dtype": str, "keep_default_na": False}
    for how in ("sample", "mean"):
        main(["impute", str(run), str(tmp_path / "odd.csv"), "--out", str(out), "--how", how])
        found, before = pd.read_csv(out, **read), pd.read_csv(tmp_path / "odd.csv", **read)
        assert found.columns.tolist() == before.columns.tolist()
        for name in ("id", "other"):
            assert found[name].tolist() == before[name].tolist()
        assert (found["age"] != "").all()
    rows.to_parquet(tmp_path / "odd.parquet")
    main(["impute", str(run), str(tmp_path / "odd.parquet"), "--out", str(out)])
    assert pd.read_csv(out, **read)["other"].tolist() == rows["other"].tolist()


class Pipe(io.TextIOWrapper):
    """What a shell connects: text with bytes below."""

    def __init__(self, content=b""):
        super().__init__(io.BytesIO(content), encoding="utf-8")


def test_tables_come_and_go_by_pipes(folder, run, capsys, monkeypatch):
    gaps = (folder / "gaps.csv").read_bytes()
    out = Pipe()
    monkeypatch.setattr("sys.stdin", Pipe(gaps))
    monkeypatch.setattr("sys.stdout", out)
    main(["impute", str(run), "-", "--out", "-"])
    filled = pd.read_csv(io.BytesIO(out.buffer.getvalue()))
    assert len(filled) == len(people())
    assert "rows: standard output" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr("sys.stdin", Pipe(gaps))
    main(["evaluate", str(run), "-", "--json"])
    piped = json.loads(capsys.readouterr().out.splitlines()[-1])
    main(["evaluate", str(run), str(folder / "gaps.csv"), "--json"])
    assert piped["nats"] == json.loads(capsys.readouterr().out.splitlines()[-1])["nats"]


def test_a_dash_that_is_a_gap_is_no_pipe(tmp_path, capsys):
    rows = "".join(f"{number},x\n-,y\n" for number in range(20))
    (tmp_path / "dashes.csv").write_text(f"a,b\n{rows}")
    out = str(tmp_path / "run")
    main(["fit", str(tmp_path / "dashes.csv"), "--out", out, "--missing-values", "-", *TINY])
    assert "50% missing" in capsys.readouterr().err


def test_draws_are_printed_as_json(run, capsys):
    main(["sample", str(run), "--n", "3", "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == 3
    assert set(rows[0]) == set(people().columns)


def test_a_narrow_terminal_cuts_no_value(run, capsys, monkeypatch):
    main(["sample", str(run), "--n", "3", "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for columns, many in (("45", True), ("250", False)):
        monkeypatch.setenv("COLUMNS", columns)
        main(["sample", str(run), "--n", "3"])
        shown = capsys.readouterr()
        plain = re.sub(r"\x1b\[\d*m", "", shown.out)
        assert max(map(len, plain.splitlines())) <= int(columns)
        assert "…" not in plain
        for row in rows:
            drawn = [str(row["account"]), row["job"], row["zip"], row["born"].replace("T", " ")]
            assert all(cell in plain for cell in drawn)
        assert all(f" {name} " in plain for name in rows[0])
        assert ("`--out rows.csv` or `--json` has each row in one piece" in shown.err) is many
        assert (len(re.findall(r"│ 3 +│", plain)) > 1) is many


@pytest.mark.usefixtures("small_chunks")
def test_parquet_keeps_its_dtypes(folder, parquet_run, tmp_path):
    file = tmp_path / "filled.parquet"
    main(["impute", str(parquet_run), str(folder / "gaps.parquet"), "--out", str(file)])
    found, whole = pd.read_parquet(file), pd.read_parquet(folder / "people.parquet")
    assert found.dtypes.to_dict() == whole.dtypes.to_dict()
    there = with_gaps(people())["age"].notna()
    assert found["age"][there].tolist() == whole["age"][there].tolist()
    assert found["account"].tolist() == whole["account"].tolist()
    main(["sample", str(parquet_run), "--n", "20", "--out", str(file)])
    drawn = pd.read_parquet(file)
    assert len(drawn) == 20
    assert drawn.dtypes.to_dict() == whole.dtypes.to_dict()


@pytest.mark.usefixtures("small_chunks")
def test_whole_numbers_are_written_without_a_point(folder, run, tmp_path):
    for command in (
        ["impute", str(run), str(folder / "gaps.csv")],
        ["sample", str(run), "--n", "5"],
    ):
        file = tmp_path / f"{command[0]}.csv"
        main([*command, "--out", str(file)])
        ages = pd.read_csv(file, dtype=str)["age"]
        assert ages.str.fullmatch(r"-?\d+").all()


def test_known_cells_are_written_as_they_were(run, tmp_path):
    file, out = tmp_path / "odd.csv", tmp_path / "out.csv"
    file.write_text("age,job\n2.6,\n1e300,nurse\n,nurse\n")
    main(["impute", str(run), str(file), "--out", str(out)])
    assert pd.read_csv(out)["age"].tolist()[:2] == [2.6, 1e300]


def test_several_draws_are_numbered(folder, run, tmp_path):
    file = tmp_path / "draws.csv"
    main(["impute", str(run), str(folder / "gaps.csv"), "--out", str(file), "--draws", "2"])
    found = read_table(file)
    assert found.columns.tolist()[:3] == ["draw", "row", "id"]
    assert sorted(zip(found["draw"], found["row"], strict=True)) == [
        (draw, row) for draw in range(2) for row in range(100)
    ]
    assert (found["id"].astype(int) == found["row"]).all()
    assert found.groupby("row")["income"].nunique().max() == 2


def test_impute_draws_again_alike(folder, run, tmp_path):
    for name, seed in (("a.csv", "0"), ("again.csv", "0"), ("b.csv", "1")):
        source = str(folder / "gaps.csv")
        main(["impute", str(run), source, "--out", str(tmp_path / name), "--seed", seed])
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "again.csv").read_text()
    assert (tmp_path / "a.csv").read_text() != (tmp_path / "b.csv").read_text()


@pytest.mark.parametrize("verb", ["impute", "score"])
def test_no_verb_writes_over_what_it_reads(folder, run, tmp_path, capsys, verb):
    file, link = tmp_path / "own.csv", tmp_path / "link.csv"
    file.write_bytes((folder / "gaps.csv").read_bytes())
    link.symlink_to(file)
    for out in (file, link):
        with pytest.raises(SystemExit):
            main([verb, str(run), str(file), "--out", str(out)])
        assert "must be another file than the one that is read" in capsys.readouterr().err
    assert file.read_bytes() == (folder / "gaps.csv").read_bytes()


def test_a_link_is_written_through(run, tmp_path):
    link, file = tmp_path / "link.csv", tmp_path / "elsewhere" / "rows.csv"
    link.symlink_to(file)
    main(["sample", str(run), "--n", "3", "--out", str(link)])
    assert link.is_symlink()
    assert len(pd.read_csv(file)) == 3


def test_best_guesses_are_those_of_the_model(folder, run, tmp_path):
    for how in ("mean", "mode"):
        file = tmp_path / f"{how}.csv"
        main(["impute", str(run), str(folder / "gaps.csv"), "--out", str(file), "--how", how])
        gappy = read_table(folder / "gaps.csv", text=["id", "zip"])
        expected = anyorder.load(run).impute(gappy, how=how)
        assert read_table(file)["job"].tolist() == expected["job"].tolist()


def test_query_of_a_number(run, capsys):
    main(["query", str(run), "--of", "income", "--given", "age=41,job=nurse"])
    shown = capsys.readouterr()
    assert "p(income | age=41,job=nurse)" in shown.out
    assert "90% interval" in shown.out
    assert "effective" not in shown.err
    main(["query", str(run), "--of", "income,born", "--given", "age=41", "--json"])
    answer = last_json(capsys)
    income, model = answer["columns"]["income"], anyorder.load(run)
    conditional = model.conditional("income", given={"age": 41})
    assert income["median"] == pytest.approx(float(conditional.median()))
    assert income["interval_90"] == pytest.approx([float(end) for end in conditional.interval()])
    assert income["quantiles"]["0.25"] < income["quantiles"]["0.75"]
    assert answer["columns"]["born"]["median"].startswith("199")
    assert answer["effective_sample_size"] is None


def test_query_shows_repeated_values(tmp_path, capsys):
    hours = [40.0] * 50 + [float(i) / 7 for i in range(40)]
    pd.DataFrame({"hours": hours, "kind": ["a", "b"] * 45}).to_csv(tmp_path / "t.csv", index=False)
    main(["fit", str(tmp_path / "t.csv"), "--out", str(tmp_path / "run"), *TINY])
    main(["query", str(tmp_path / "run"), "--of", "hours", "--json"])
    repeated = last_json(capsys)["columns"]["hours"]["repeated"]
    assert repeated["values"] == [40]
    (probability,) = repeated["probabilities"]
    assert 0 < probability < 1
    main(["query", str(tmp_path / "run"), "--of", "hours"])
    assert re.search(r"40 +│ +\d+\.\d%", capsys.readouterr().out)


def test_query_of_a_category_given_regions(run, capsys):
    given = "age=30..,income=..100000,zip=01234|90210"
    main(["query", str(run), "--of", "job", "--given", given])
    shown = capsys.readouterr()
    assert re.search(r"baker, head +│ +\d+\.\d% │ +\d+\.\d% │ █", shown.out)
    worth = re.search(r"1,024 weighted samples. They are worth ([\d,]+) equal ones", shown.err)
    assert worth
    assert 500 < int(worth[1].replace(",", "")) < 1024
    main(["query", str(run), "--of", "job,smoker", "--given", given, "--json"])
    answer = last_json(capsys)
    for column in ("job", "smoker"):
        shares = answer["columns"][column]["probabilities"]
        assert sum(shares) == pytest.approx(1, abs=1e-5)
        assert shares == sorted(shares, reverse=True)
    assert answer["columns"]["smoker"]["levels"][0] in (True, False)
    assert 1 < answer["effective_sample_size"] <= 1024


def test_query_draws_a_plot(run, tmp_path, capsys):
    file = tmp_path / "new" / "plot.png"
    main(["query", str(run), "--of", "income,job", "--plot", str(file)])
    assert file.read_bytes().startswith(b"\x89PNG")
    assert "Plotted" in capsys.readouterr().err


def test_many_levels_are_cut_to_the_most_probable(tmp_path, capsys):
    frame = pd.DataFrame({"word": [f"w{i % 30}" for i in range(90)], "x": np.arange(90) / 7})
    frame.to_csv(tmp_path / "t.csv", index=False)
    main(["fit", str(tmp_path / "t.csv"), "--out", str(tmp_path / "run"), *TINY])
    main(["query", str(tmp_path / "run"), "--of", "word"])
    shown = capsys.readouterr()
    assert len(re.findall(r"│ w\d+ ", shown.out)) == 20
    assert re.search(r"10 other levels have \d+\.\d% together", shown.err)


def test_sample_prints_rows(run, capsys):
    main(["sample", str(run), "--n", "3", "--given", 'job="baker, head",zip=00501'])
    shown = capsys.readouterr().out
    assert len(re.findall(r"│ baker, head +│ 00501 +│", shown)) == 3
    main(["sample", str(run), "--n", "2", "--given", "age=30..40"])
    assert not capsys.readouterr().err


def test_it_is_said_when_few_draws_of_the_evidence_count(run, capsys, monkeypatch):
    monkeypatch.setattr(SoftEvidence, "effective_sample_size", 2.0)
    given = ["--given", "age=30..40,income=..100000"]
    main(["query", str(run), "--of", "job", *given])
    said = capsys.readouterr().err
    assert "1,024 weighted samples. They are worth 2 equal ones (the effective sample size)" in said
    main(["sample", str(run), "--n", "5", *given])
    assert "5 rows are worth 2 independent ones (the effective" in capsys.readouterr().err


@pytest.mark.usefixtures("small_chunks")
def test_sample_writes_rows(run, tmp_path, capsys):
    for name in ("a.csv", "b.csv", "c.parquet"):
        main(
            [
                "sample",
                str(run),
                "--n",
                "30",
                "--given",
                "age=30..40",
                "--out",
                str(tmp_path / name),
            ]
        )
    assert "Sampled 30 rows" in capsys.readouterr().err
    found = read_table(tmp_path / "a.csv", text=["zip"])
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()
    assert len(found) == len(read_table(tmp_path / "c.parquet")) == 30
    assert found["age"].between(30, 40).all()
    assert found["income"].nunique() == 30


def test_evaluate_is_the_mean_of_log_likelihoods(folder, run, capsys, monkeypatch):
    file = folder / "gaps.csv"
    main(["evaluate", str(run), str(file), "--json"])
    whole = last_json(capsys)
    frame = read_table(file, text=["id", "zip"])
    logs = torch.from_numpy(anyorder.load(run).log_prob(frame))
    assert whole["rows"] == whole["nats"]["joint"]["n"] == 100
    assert whole["nats"]["joint"]["value"] == pytest.approx(float(logs.mean()), abs=1e-5)
    assert whole["nats"]["joint"]["se"] == pytest.approx(float(logs.std()) / 10, rel=1e-5)
    assert whole["nats"]["conditional"]["n"] == 100
    monkeypatch.setattr("anyorder.tables.scoring.ROWS_AT_ONCE", 7)
    main(["evaluate", str(run), str(file), "--json"])
    assert last_json(capsys)["nats"]["joint"] == pytest.approx(whole["nats"]["joint"], rel=1e-5)
    main(["evaluate", str(run), str(file)])
    assert "a random half of it, given the other" in capsys.readouterr().out


def test_evaluate_says_how_well_columns_are_guessed(folder, run, capsys, monkeypatch):
    file = folder / "gaps.csv"
    main(["evaluate", str(run), str(file), "--json"])
    found = last_json(capsys)["columns"]
    skill = anyorder.load(run).skill(read_table(file, text=["id", "zip"]))
    assert list(found) == skill.index.tolist()
    for name, one in found.items():
        own = skill.loc[name].to_dict()
        assert one.pop("unit") == own.pop("unit")
        assert one == pytest.approx(own, rel=1e-5), name
    monkeypatch.setattr("anyorder.tables.scoring.LITTLE", 1.1)  # more than all
    main(["evaluate", str(run), str(file)])
    shown = capsys.readouterr()
    assert re.search(r"age .* off by [\d.]+ ", shown.out)
    assert re.search(r"job .*% right ", shown.out)
    assert re.search(r"born .* off by \d+ days ", shown.out)
    assert "warning: no column is predicted better" in shown.err


@pytest.mark.usefixtures("small_chunks")
def test_rows_of_the_training_are_known_again(run, tmp_path, capsys):
    """In another order and read in parts, but not where one of them is left out."""
    rows = with_gaps(people())
    files = {True: rows.iloc[::-1], False: rows.iloc[1:]}
    for seen, frame in files.items():
        file = tmp_path / f"{seen}.csv"
        frame.to_csv(file, index=False)
        for verb in ("evaluate", "check"):
            main([verb, str(run), str(file), "--json"])
            assert last_json(capsys)["trained_on"] is seen
        main(["evaluate", str(run), str(file), "--report", str(tmp_path / f"{seen}.html")])
        assert ("These rows were trained on" in capsys.readouterr().err) is seen
        page = (tmp_path / f"{seen}.html").read_text()
        assert ("These rows were trained on" in page) is seen
        assert ("should not have seen" in page) is not seen


def test_evaluate_a_stated_question(folder, run, capsys):
    command = ["evaluate", str(run), str(folder / "gaps.csv"), "--query", "job,income"]
    main([*command, "--given", "age", "--json"])
    found = last_json(capsys)
    frame = read_table(folder / "gaps.csv", text=["id", "zip"])
    asked = frame[frame["job"].notna() & frame["income"].notna()]
    logs = anyorder.load(run).log_prob(asked, query=["job", "income"], given=["age"])
    assert found["nats"]["query"]["n"] == len(asked) < found["rows"]
    assert found["nats"]["query"]["value"] == pytest.approx(logs.mean(), abs=1e-5)
    main([*command, "--given", "age"])
    assert "job, income given age" in capsys.readouterr().out


def test_check_reports_gaps_and_calibration(folder, run, tmp_path, capsys):
    command = ["check", str(run), str(folder / "gaps.csv")]
    main([*command, "--out", str(tmp_path / "new")])
    shown = capsys.readouterr()
    assert (
        "gaps.csv, 100 of 100 rows: consistency, the same likelihood computed in two ways"
        in shown.out
    )
    assert re.search(r"with a variable summed out +│ +\d+\.\d+ ± \d+\.\d+", shown.out)
    assert re.search(r"- Asked in another order, the same likelihood changes by \d", shown.out)
    assert re.search(r"three quarters +│ +\d+ │ +\d+\.\d% ± ", shown.out)
    assert "check.json" in shown.err
    written = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert written == ["check.json", "coverage.png", "pit.png", "reliability.png"]
    found = json.loads((tmp_path / "new" / "check.json").read_text())
    main([*command, "--json"])
    assert last_json(capsys) == {"data": "gaps.csv", "trained_on": True, **found}
    assert set(found["numbers"]) == set(found["categories"])
    assert all(f"- {sentence}" in shown.out for sentence in found["sentences"])


@pytest.mark.usefixtures("small_chunks")
def test_check_of_some_rows_is_that_of_the_model(folder, run, capsys):
    main(["check", str(run), str(folder / "gaps.csv"), "--rows", "30", "--seed", "2", "--json"])
    found = last_json(capsys)
    frame = read_table(folder / "gaps.csv", text=["id", "zip"])
    expected = anyorder.load(run).check(frame, rows=30, random_state=2)
    assert found.pop("data") == "gaps.csv"
    assert found.pop("trained_on")
    assert found.pop("counts")["conditionals"] > 0
    assert found == json.loads(json.dumps(expected.to_json()))
    assert found["rows"] == 30


def test_check_does_without_matplotlib(folder, run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("anyorder.cli.runs.find_spec", lambda _: None)
    command = ["check", str(run), str(folder / "gaps.csv"), "--rows", "20"]
    main([*command, "--out", str(tmp_path)])
    assert 'pip install "anyorder[plot]"' in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["check.json"]


def test_running_moments_are_those_of_all_values(generator):
    values, running = torch.randn(50, generator=generator) + 1e4, RunningMean()
    for part in values.split(7):
        running.add(part)
    assert running.mean == pytest.approx(float(values.double().mean()))
    assert running.se == pytest.approx(float(values.double().std()) / 50**0.5)


def test_info_says_what_a_model_is(run, capsys):
    main(["info", str(run)])
    shown = capsys.readouterr().out
    assert re.search(r"zip +│ category", shown)
    assert "MarginalQueries: 1 to 7 of the 7 variables, every size equally likely" in shown
    assert "PartialQueries: some of the 7 variables, given some" in shown
    assert "PathPerceptron: units 16, blocks 1" in shown
    assert "; with a prior" in shown
    main(["info", str(run), "--json"])
    about = last_json(capsys)
    assert about["domain"] == "table"
    assert about["columns"][0] == {
        "column": "id",
        "kind": "ignored",
        "details": "its type is ignore",
    }
    assert about["questions"]["type"] == "MixtureQueries"
    assert about["anyorder"] == anyorder.__version__
    assert about["parameters"] == anyorder.load(run).model_.num_parameters
    main(["info", "shipped", "--json"])
    assert last_json(capsys)["domain"] == "text"


def test_info_says_how_many_members_an_ensemble_has(tmp_path, capsys):
    frame = pd.DataFrame({"a": range(40), "b": ["x", "y"] * 20})
    options = {"max_steps": 1, "layers": 1, "width": 16, "heads": 2}
    anyorder.TableModel(members=2, **options).fit(frame).save(tmp_path)
    main(["info", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "2 of PathPerceptron: units 16, blocks 1" in shown
    assert "2 of MixedConditionals" in shown


@pytest.mark.parametrize("missing", ["mcar", "mar"])
def test_a_stopped_training_is_loaded_from_its_last_checkpoint(folder, tmp_path, missing):
    command = ["fit", str(folder / "gaps.csv"), "--out", str(tmp_path), *DECLARED, *TINY]
    main([*command, "--missing", missing])
    (tmp_path / "model.json").unlink()
    (tmp_path / "weights.safetensors").unlink()
    model = anyorder.load(tmp_path)
    assert isinstance(model, anyorder.TableModel)
    assert model.missing == missing


def test_load_gives_a_model_of_either_domain(run, tmp_path):
    assert isinstance(anyorder.load(run), anyorder.TableModel)
    model = anyorder.TextModel.shipped()
    model.save(tmp_path / "text")
    assert isinstance(anyorder.load(tmp_path / "text"), anyorder.TextModel)
    anyorder.save_model(tmp_path / "bare", model.model_)
    with pytest.raises(CheckpointError, match="no model of a known domain"):
        anyorder.load(tmp_path / "bare")


def test_what_is_written_is_read_back():
    table = TableSchema.infer(people())
    known = {"age": 41, "job": "baker, head", "zip": "00501", "born": "1990-05-31 10:00:00"}
    assert read_given(table, written_given(known)) == known
    assert quoted('a "b"') == '"a ""b"""'
    read = read_given(table, 'age=30.5..,income=..1e4,job="baker, head"|nurse,born=1990-01-01..')
    assert read == {
        "age": (30.5, None),
        "income": (None, 1e4),
        "job": ["baker, head", "nurse"],
        "born": ("1990-01-01", None),
    }


def test_levels_may_hold_what_separates():
    levels = pd.Series(["a|b", "1..2", "x=y", 'q"', "c"], name="odd")
    table = TableSchema.infer(pd.DataFrame({"odd": levels, "and, other": range(5)}))
    for level in levels:
        assert read_given(table, written_given({"odd": level})) == {"odd": level}
    assert read_given(table, "odd=a|b") == {"odd": "a|b"}
    assert read_given(table, '"and, other"=3') == {"and, other": 3}


def test_questions_are_read():
    assert read_queries("0.5: a, b -> c;->d") == [(["a", "b"], ["c"], 0.5), ([], ["d"], 1.0)]
    assert read_queries('"3: x" -> "a,b"') == [(["3: x"], ["a,b"], 1.0)]


def test_chunks_are_written_whole_or_not_at_all(tmp_path):
    def broken():
        yield pd.DataFrame({"a": [1]})
        raise KeyboardInterrupt

    for name in ("t.csv", "t.parquet"):
        file = tmp_path / name
        assert write_chunks([pd.DataFrame({"a": [1, 2], "b": [None, None]})], file) == 2
        before = file.read_bytes()
        with pytest.raises(KeyboardInterrupt):
            write_chunks(broken(), file)
        with pytest.raises(SchemaError, match="There are no rows to write"):
            write_chunks([], file)
        assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.parquet"]
    parts = [pd.DataFrame({"a": [1]}), pd.DataFrame({"a": ["x"]})]
    with pytest.raises(SchemaError, match="of one type in all rows; write a"):
        write_chunks(parts, tmp_path / "t.parquet")
    parts = [pd.DataFrame({"a": [None], "b": [1]}), pd.DataFrame({"a": ["x"], "b": [np.nan]})]
    write_chunks(parts, tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet")["a"].tolist()[1] == "x"


def test_rows_with_a_gap_in_the_query_get_an_empty_score(folder, run, tmp_path, capsys):
    command = ["score", str(run), str(folder / "gaps.csv"), "--out", str(tmp_path / "s.csv")]
    main([*command, "--query", "age"])
    assert "Scored 80 rows: " in (told := capsys.readouterr().err)
    assert "20 were left empty" in told
    scores, frame = pd.read_csv(tmp_path / "s.csv"), pd.read_csv(folder / "gaps.csv")
    assert scores["log_prob"].isna().tolist() == frame["age"].isna().tolist()


BAD_COMMANDS = {
    "other domain": ("fit {csv} --out x --length 9", '`--length` is for text, and "'),
    "other domain of text": ("fit pydoc --out x --types a=b", "`--types` is for tables"),
    "forced": ("fit {run}/model.json --out x --as table", 'got "model.json"'),
    "no file": ("fit none.csv --out x", 'There is no file "none.csv"'),
    "empty": ("fit {empty} --out x", "at least one row"),
    "separator": ("fit {uneven} --out x", "no commas in its first line, but semicolons, which do"),
    "steps": ("fit {csv} --out x --steps 0", "`steps` must be a whole number, 1 or more"),
    "seed": ("fit {csv} --out x --seed -1", "`seed` must be a whole number"),
    "type": ("fit {csv} --out x --types age=nmber", 'Did you mean "number"?'),
    "type of none": ("fit {csv} --out x --types aeg=number", 'Did you mean "age"?'),
    "types": ("fit {csv} --out x --types age", "must have the form name=value"),
    "context": ("fit {csv} --out x --context jbo", 'Did you mean "job"?'),
    "queries": ("fit {csv} --out x --queries 'aeg -> job'", 'Did you mean "age"?'),
    "no arrow": ("fit {csv} --out x --queries 'age'", 'queries such as "age,job -> income"'),
    "nothing asked": ("fit {csv} --out x --queries 'age ->'", 'such as "age,job -> income"'),
    "no queries": ("fit {csv} --out x --queries ';'", "must hold a query"),
    "weight": ("fit {csv} --out x --queries '1.1.1: age -> job'", "numbers for weights"),
    "both sides": ("fit {csv} --out x --queries 'age -> age'", '"age" is both given and queried'),
    "context asked": ("fit {csv} --out x --context age --queries '-> age'", '"age" is context'),
    "no run": ("impute none {csv} --out x.csv", '"none" holds no checkpoint'),
    "text run": ("impute shipped {csv} --out x.csv", '"shipped" holds a model of text'),
    "table run": ("infill {run} a_", "holds a model of a table; this asks for one of text"),
    "odd out": ("impute {run} {csv} --out x.xls", 'got "x.xls"'),
    "folder out": ("impute {run} {csv} --out {run}", "`--out` must be a file"),
    "zip out": ("impute {run} {csv} --out x.csv.zip", 'A ".zip" file cannot be written'),
    "no rows": ("impute {run} {empty} --out x.csv", "at least one row"),
    "no columns": ("impute {run} {semicolons} --out x.csv", "has no column of the model"),
    "draws": ("impute {run} {csv} --out x.csv --draws 2 --how mean", "there is one mean only"),
    "draw": ("impute {run} {numbered} --out x.csv --draws 2", 'a column "row", which the table'),
    "level in file": ("impute {run} {odd} --out x.csv", "levels seen in training; got 'pilot'"),
    "number in file": ("evaluate {run} {words}", "must hold numbers; got 'old'"),
    "how": ("impute {run} {csv} --out x.csv --how median", "median"),
    "of": ("query {run} --of incme", '`--of` must name columns of the model; got "incme". Did'),
    "of nothing": ("query {run} --of ''", "`--of` must name a column"),
    "of ignored": ("query {run} --of id", '`--of` must name columns of the model; got "id"'),
    "given": ("query {run} --of age --given jbo=nurse", 'got "jbo". Did you mean "job"?'),
    "level": ("query {run} --of age --given job=nurze", 'Did you mean "nurse"?'),
    "levels": ("query {run} --of age --given 'job=nurse|clark'", 'Did you mean "clerk"?'),
    "number": ("query {run} --of job --given age=old", 'a number for "age"; got "old"'),
    "date": ("query {run} --of job --given born=then", "must hold dates or times"),
    "descending": ("query {run} --of job --given age=40..30", "must ascend"),
    "no ends": ("query {run} --of job --given age=..", "written low..high, low.. or ..high"),
    "three ends": ("query {run} --of job --given age=1..2..3", "written low..high"),
    "set": ("query {run} --of job --given 'age=30|40'", "give a value or an interval"),
    "interval": ("query {run} --of age --given job=a..b", '"job" is a category: give levels'),
    "no value": ("query {run} --of job --given age=", "must have the form name=value"),
    "twice": ("query {run} --of job --given age=3,age=4", '"age" stands there twice'),
    "quotes": ("query {run} --of age --given 'job=\"nurse'", "even number of double quotes"),
    "asked and given": ("query {run} --of age --given age=41", "both queried and given"),
    "plot": ("query {run} --of age --plot x.jpeg", "`--plot` must be a .png, .svg or .pdf"),
    "n": ("sample {run} --n 0", "`n` must be a whole number, 1 or more"),
    "rows": ("evaluate {run} {csv} --rows 9", "`--rows` is for text"),
    "query of text": ("evaluate shipped pydoc --query a", "`--query` is for tables"),
    "given only": ("evaluate {run} {csv} --given age", "`--given` needs `--query`"),
    "query": ("evaluate {run} {csv} --query aeg", 'Did you mean "age"?'),
    "both": ("evaluate {run} {csv} --query age --given age", "both queried and given"),
    "not there": ("evaluate {run} {odd} --query age", 'must have the column "age"'),
    "check rows": ("check {run} {csv} --rows 0", "`rows` must be a whole number, 1 or more"),
    "check out": ("check {run} {csv} --out {csv}", "`--out` must be a folder"),
    "check of words": ("check {run} {words}", "must hold numbers; got 'old'"),
    "check of nothing": ("check {run} {semicolons}", "has no column of the model"),
    "check of no text": ("check shipped none.txt", 'There is no file "none.txt"'),
    "check of no run": ("check none {csv}", '"none" holds no checkpoint'),
    "info": ("info none", '"none" holds no checkpoint'),
}


@pytest.fixture(scope="module")
def files(folder, run):
    texts = {
        "empty": "age,job\n",
        "semicolons": "size;weight\n41;nurse\n",
        "uneven": "age;job\n41;nurse;2\n42\n",
        "numbered": "age,row\n41,1\n",
        "odd": "job\npilot\n",
        "words": "age\n41\nold\n",
    }
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)
    paths = {name: folder / f"{name}.csv" for name in texts}
    return {**paths, "run": run, "csv": folder / "people.csv"}


@pytest.mark.parametrize("name", BAD_COMMANDS)
def test_mistakes_get_one_sentence(name, files, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command, sentence = BAD_COMMANDS[name]
    with pytest.raises(SystemExit) as stopped:
        main(shlex.split(command.format(**files)))
    streams = capsys.readouterr()
    assert stopped.value.code == 2
    assert sentence in streams.err
    assert streams.err.startswith("error: ")
    assert streams.err.count("\n") == 1
    assert not streams.out
    assert not list(tmp_path.iterdir())


def test_check_puts_answers_beside_counts_and_looks_at_a_target(folder, run, capsys):
    files = [str(run), str(folder / "people.csv")]
    main(["check", *files, "--target", "job", "--json"])
    found = last_json(capsys)
    counts, target = found["counts"], found["target"]
    assert counts["conditionals"] >= len(counts["worst"]) > 0
    sizes = [abs(one["z"]) for one in counts["worst"]]
    assert sizes == sorted(sizes, reverse=True)
    assert target["column"] == "job"
    assert all(0 <= one["predicted"] <= 1 for one in target["deciles"])
    main(["check", *files, "--target", "job"])
    shown = capsys.readouterr().out
    assert "Answers beside counts" in shown
    assert f"p(job={target['level']} | the rest of the row), by tenths" in shown


def test_check_refuses_a_target_that_is_no_category(folder, run, capsys):
    files = [str(run), str(folder / "people.csv")]
    for target, sentence in (("age", "must be a category"), ("jobb", 'Did you mean "job"')):
        with pytest.raises(SystemExit):
            main(["check", *files, "--target", target])
        assert sentence in capsys.readouterr().err


def test_a_column_that_looks_misspelt_is_told(folder, run, tmp_path, capsys):
    lines = (folder / "people.csv").read_text().replace("job", "jobb", 1)
    (tmp_path / "rows.csv").write_text(lines)
    files = [str(run), str(tmp_path / "rows.csv")]
    main(["impute", *files, "--out", str(tmp_path / "filled.csv")])
    said = capsys.readouterr().err
    assert 'has a column "jobb" that the model does not know. Did you mean "job"?' in said
