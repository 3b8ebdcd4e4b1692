"""Every verb and every common mistake: exit code 2, and one sentence that says what to do."""

import json
import shlex
import shutil
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest

from anyorder.cli.app import main
from anyorder.images.files import write_image
from anyorder.images.model import ImageModel
from anyorder.tables.model import TableModel
from anyorder.training.settings import TrainingSettings

SHAPE = {"layers": 1, "width": 16, "heads": 2}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with models, files that are fine, and files that are not."""
    folder = tmp_path_factory.mktemp("mistakes")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(20, 60, 40), "job": rng.choice(["a", "b"], 40)})
    frame["id"] = [f"k{i}" for i in range(40)]
    frame["born"] = pd.date_range("2024-01-01", periods=40)
    frame["size"] = rng.normal(170, 10, 40)
    frame.to_csv(folder / "people.csv", index=False)
    TableModel(**SHAPE, max_steps=2, types={"id": "ignore"}).fit(frame).save(folder / "table")
    settings = TrainingSettings(steps=1, batch=4, warmup=1)
    images = rng.integers(0, 4, (20, 2, 2, 1), dtype=np.uint8)
    ImageModel(**SHAPE, settings=settings).fit(images).save(folder / "image")
    shutil.copy(folder / "people.csv", folder / "people.data")
    for name in ("sheet.xlsx", "empty.csv", "empty.txt", "empty.png", "broken.parquet"):
        (folder / name).write_bytes(b"")
    (folder / "headed.csv").write_text("age,job\n")
    (folder / "odd.csv").write_text("age,job\n30,a\nold,b\n")
    (folder / "other.csv").write_text("height,weight\n1,2\n")
    shutil.copytree(folder / "table", folder / "future")
    document = json.loads((folder / "future" / "model.json").read_text())
    document["format"] = 10**6
    (folder / "future" / "model.json").write_text(json.dumps(document))
    (folder / "nothing").mkdir()
    for name in ("two.csv.zip", "two.zip"):
        with ZipFile(folder / name, "w") as archive:
            archive.write(folder / "people.csv", "a.csv")
            archive.write(folder / "people.csv", "b.csv")
    (folder / "broken.csv.zip").write_text("no archive")
    for name, count in (("single", 1), ("pictures", 9)):
        for number in range(count):
            picture = np.full((2, 2, 1), number, dtype=np.uint8)
            write_image(folder / name / f"{number}.png", picture)
    return folder


MISTAKES = [
    # a verb, a flag, a value that does not exist
    "fitt people.csv --out x",
    "fit people.csv --uot x",
    "fit people.csv --out x --minutes soon",
    "fit people.csv --out x --steps 0",
    "fit people.csv --out x --as tabel",
    "fit people.csv",
    "query table",
    "query table --of age --sede 1",
    "sample table --n none",
    "sample table --n 0",
    "impute table people.csv --out filled.csv --how guess",
    "score table people.csv --out scores.xlsx",
    "score table people.csv --out scores.csv --query agee",
    "score table nowhere.csv --out scores.csv",
    "score table empty.csv --out scores.csv",
    "score table nothing --out scores.csv",
    "score future people.csv --out scores.csv",
    "score shipped people.csv --out scores.csv",
    "serve nowhere",
    "serve nothing",
    "serve future",
    "serve people.csv",
    "serve table --port many",
    "serve table --port 99999999",
    "serve table --host 0.0.0.0",
    "impute table people.csv --out filled.xlsx",
    "infill shipped th_ --temperature 0",
    "infill shipped th_ --n 2 --greedy",
    "inpaint image digits --half middle --out g.png",
    "inpaint image people.csv --half left --out g.txt",
    "evaluate table people.csv --report page.pdf",
    "evaluate table people.csv --rows 5",
    "evaluate shipped pydoc --query age",
    "check table people.csv --rows 0",
    "check table people.csv --out people.csv",
    "reproduce table77",
    "reproduce table4 --scale huge",
    "demo --out people.csv",
    "demo --seed -1",
    "fit digits --out x --size ²",
    "fit digits --out x --size 100000",
    "fit digits --out x --size 3",
    "fit digits --out x --patch 1.5",
    "fit digits --out x --levels 300",
    "inpaint image digits --half left --out g.png --temperature 0",
    "inpaint image digits --half left --out g.png --n 0",
    # files that are not there, are empty, are folders, are something else
    "fit nowhere.csv --out x",
    "fit empty.csv --out x",
    "fit headed.csv --out x",
    "fit empty.txt --out x",
    "fit nothing --out x",
    "fit nowhere --as image --out x",
    "fit mnist --out x",
    "fit broken.parquet --out x",
    "fit people.csv --out empty.csv",
    "impute table nowhere.csv --out filled.csv",
    "impute table empty.csv --out filled.csv",
    "impute table nothing --out filled.csv",
    "impute table other.csv --out filled.csv",
    "evaluate table nowhere.csv",
    "evaluate table empty.csv",
    "evaluate table headed.csv",
    "evaluate table nothing",
    "evaluate table other.csv",
    "evaluate shipped nowhere.txt",
    "evaluate shipped empty.txt",
    "evaluate image nowhere",
    "evaluate image digits",
    "evaluate image nothing",
    "check image people.csv",
    "check table nowhere.csv",
    "check table empty.csv",
    "check table nothing",
    "check shipped nowhere.txt",
    "inpaint image nowhere.png --half left --out g.png",
    "inpaint image empty.png --half left --out g.png",
    "reproduce table1 --data nowhere",
    # columns and levels that are not there
    "fit people.csv --out x --types agee=number",
    "fit people.csv --out x --context agee",
    "fit people.csv --out x --queries jib",
    "query table --of agee",
    "query table --of age --given jib=a",
    "query table --of age --given job=c",
    "query table --of age --given age",
    "sample table --given agee=3",
    "evaluate table people.csv --query agee",
    "evaluate table people.csv --query age --given jib",
    # runs that are not there, of another domain, of another version
    "query nowhere --of age",
    "query nothing --of age",
    "query people.csv --of age",
    "query shipped --of age",
    "query future --of age",
    "sample image",
    "sample future",
    "impute shipped people.csv --out filled.csv",
    "infill table th_",
    "infill nowhere th_",
    "infill future th_",
    "inpaint table digits --half left --out g.png",
    "evaluate nowhere people.csv",
    "evaluate future people.csv",
    "check nothing people.csv",
    "check future people.csv",
    "info nowhere",
    "info nothing",
    "info future",
]


MESSAGES = {
    # files that would be taken for something else
    "fit nowhere.xlsx --out x": 'There is no file "nowhere.xlsx". Give a table',
    "fit sheet.xlsx --out x": 'save "sheet.xlsx" as .csv or .parquet',
    "fit two.zip --out x": "an archive: unpack it, and give the table, the text or the fol",
    "fit two.csv.zip --out x": "must hold one CSV file and nothing else",
    "fit broken.csv.zip --out x": "Unpack it, and give the file in it.",
    "impute table two.zip --out x.csv": 'got "two.zip". Unpack it, and give the file in it.',
    "fit people.csv --out odd.csv": '"odd.csv" is a file. Name another, such as "runs/odd".',
    "fit people.csv --out odd.csv/run": '"odd.csv" is a file. Name another, such as "runs/odd".',
    "inpaint image nothing --half left --out g.png": '"nothing" is a folder without pictures (.png',
    "inpaint image pictures --out g.png": '"pictures" is a folder of pictures: set the hole',
    "inpaint image single --out g.png": 'give one picture, such as "single/0.png".',
    "inpaint image pictures/0.png --mask nothing --out g.png": '"nothing" is a folder, where one',
    # what is typed in a way that another program would take
    "query table --of age --given job=c": 'Known are "a", "b".',
    "query table --of job --given born=01.02.2024": "Write 2024-02-01",
    "query table --of job --given size=176,6": "Write decimals with a point",
    "query table --of job --given 'size=\"176,6\"'": "Write decimals with a point",
    "query table --of job --given 'age>30'": 'write "age=30.."',
    "query table --of job --given 'age <= 30'": 'write "age=..30"',
    "query table --of job --given 'age=30|40'": "--types age=category",
    "query table --of id": "It was left out when the model was fitted (its type is ignore)",
    "query table --of zzz": 'Known are "age", "job", "born", "size".',
    "impute table odd.csv --out x.csv": "got 'old' (row 1). If it stands for a missing value",
    # runs that are none
    "info tabel": 'there is no such folder. Did you mean "table"?',
    "info shiped": 'Did you mean "shipped"?',
    "info zzz": "there is no such folder. `anyorder fit` makes one.",
    "info people.csv": "it is a file. The folder of a model comes first",
    "impute people.csv table --out x.csv": "it is a file. The folder of a model comes first",
    # what is missing, or cannot be
    "fit": 'Command "fit" needs FILE.',
    "impute table": 'Command "impute" needs FILE.',
    "fit people.csv --out x --minutes -1": "`--minutes` must be above 0",
    "fit people.csv --out x --heads 5": "`--heads` must divide the width, which is 96; got 5",
    "fit people.data --out x": 'with commas in every line, but does not end like one: call it "pe',
}
"""What some mistakes are told."""


@pytest.mark.parametrize("command", MESSAGES)
def test_mistakes_are_told_what_to_do(command, place, capsys, monkeypatch):
    monkeypatch.chdir(place)
    with pytest.raises(SystemExit) as stopped:
        main(shlex.split(command))
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert MESSAGES[command] in line


@pytest.mark.parametrize("command", MISTAKES)
def test_mistakes_get_one_sentence(command, place, capsys, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.delenv("ANYORDER_DATA", raising=False)
    before = sorted(place.iterdir())
    with pytest.raises(SystemExit) as stopped:
        main(command.split())
    streams = capsys.readouterr()
    assert stopped.value.code == 2
    lines = streams.err.strip().splitlines()
    assert lines[-1].startswith("error: ")
    assert "Traceback" not in streams.err
    assert len(lines[-1]) < 400
    assert sorted(place.iterdir()) == before, "nothing is left behind"


def test_every_verb_has_its_mistakes():
    from anyorder.cli.app import app

    verbs = {name for name in app if not name.startswith("-")}
    assert verbs <= {command.split()[0] for command in MISTAKES}
