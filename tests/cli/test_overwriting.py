"""Fitting into a folder that holds an earlier training: refused by flags, or made room for."""

import itertools
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock

import anyorder
from anyorder.cli.app import main
from anyorder.cli.resume import ASIDE
from anyorder.errors import CheckpointError
from anyorder.training.learner import Learner

TINY = "--layers 1 --width 16 --heads 2"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a table, and the same with another column, and with other rows."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(20, 60, 40), "job": rng.choice(["a", "b"], 40)})
    frame["zip"] = rng.choice(["10115", "90210"], 40)
    frame.to_csv("people.csv", index=False)
    frame.assign(size=1.5).to_csv("wider.csv", index=False)
    frame.iloc[:30].to_csv("fewer.csv", index=False)
    (tmp_path / "book.txt").write_text("some words of my own " * 40)
    (tmp_path / "other.txt").write_text("some worms of my own " * 40)
    return tmp_path


def run(command):
    main(shlex.split(command))


def refused(command, capsys):
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        run(command)
    assert stopped.value.code == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert not re.search(r"`(model|settings|data)\.| there and ", line), "no internal words"
    return line


def written(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


DIFFERENCES = {
    "--steps 3": "`--steps` was 2 and is 3 now",
    "--steps 2 --types zip=category": "`--types` was not given and is zip=category now",
    "--steps 2 --queries 'age -> job'": "`--queries` was not given and is 1: age -> job now",
    "--steps 2 --context zip": "`--context` was not given and is zip now",
    "--steps 2 --seed 5": "`--seed` was 0 and is 5 now",
    "--minutes 0.5": "`--minutes` was not given and is 0.5 now; `--steps` was 2 and is not given",
}


def test_another_fit_is_refused_by_its_flags(place, capsys):
    run(f"fit people.csv --out run {TINY} --steps 2")
    before = written(place / "run")
    for options, words in DIFFERENCES.items():
        line = refused(f"fit people.csv --out run {TINY} {options}", capsys)
        assert line.startswith(f'error: "run" holds an earlier training: {words}')
        assert "another `--out`; or `--overwrite`" in line
    also, rows = (f"fit {name}.csv --out run {TINY} --steps 2" for name in ("wider", "fewer"))
    assert '"wider.csv" also has the column "size"' in refused(also, capsys)
    assert 'it is of other rows than those of "fewer.csv"' in refused(rows, capsys)
    text = refused(f"fit book.txt --length 8 --out run {TINY} --steps 2", capsys)
    assert 'it is of a table, and "book.txt" of text' in text
    wide = refused(f"fit people.csv --out run {TINY.replace('16', '32')} --steps 2", capsys)
    assert "`--width` was 16 and is 32 now" in wide
    assert written(place / "run") == before


def test_minutes_are_those_that_were_typed(place, capsys, monkeypatch):
    monkeypatch.setattr("anyorder.tables.ensemble.STEPS", 1)
    run(f"fit people.csv --out run {TINY} --minutes 0.01")  # divided among several members
    assert (place / "run" / "training" / "member-1").is_dir()
    line = refused(f"fit people.csv --out run {TINY} --minutes 1.25", capsys)
    assert "`--minutes` was 0.01 and is 1.25 now." in line
    run(f"fit people.csv --out run {TINY} --steps 2 --overwrite")
    assert not (place / "run" / "training" / "member-1").exists()


def test_a_training_in_stages_makes_room(place):
    frame = pd.read_csv("people.csv")
    frame.loc[::3, "age"] = None
    frame.to_csv("gaps.csv", index=False)
    run(f"fit gaps.csv --out run {TINY} --steps 8 --missing mar")
    assert (place / "run" / "training" / "stage-1").is_dir()
    run(f"fit people.csv --out run {TINY} --steps 2 --overwrite")
    assert not (place / "run" / "training" / "stage-1").exists()


@pytest.mark.usefixtures("place")
def test_texts_and_pictures_are_refused_by_flags_too(capsys):
    text, image = (f"fit {name} {TINY} --steps 1" for name in ("book.txt", "digits"))
    run(f"{text} --length 8 --out text")
    assert "`--length` was 8 and is 9 now" in refused(f"{text} --length 9 --out text", capsys)
    other = f"{text.replace('book', 'other')} --length 8 --out text"
    assert 'it is of another text than "other.txt"' in refused(other, capsys)
    run(f"{image} --size 2 --levels 4 --out image")
    for options, words in {
        "--size 4 --levels 4": "`--size` was 2x2 and is 4x4 now",
        "--size 2 --levels 2": "`--levels` was 4 and is 2 now",
        "--size 2 --levels 4 --turns": "`--turns` differs",
    }.items():
        assert words in refused(f"{image} {options} --out image", capsys)
    run(f"{image} --size 4 --levels 4 --out image --overwrite")
    assert anyorder.load("image").fitted_shape() == (4, 4, 1)
    run(f"{text} --length 9 --out text --overwrite")
    assert anyorder.load("text").length == 9


def test_overwrite_starts_anew_and_keeps_other_files(place, capsys):
    run(f"fit people.csv --out run {TINY} --steps 2 --overwrite")  # nothing is there yet
    (place / "run" / "notes.txt").write_text("mine")
    capsys.readouterr()
    run(f"fit wider.csv --out run {TINY} --steps 3 --overwrite")
    assert "Already trained" not in capsys.readouterr().err
    assert anyorder.load("run").max_steps == 3
    found = sorted(path.name for path in (place / "run").iterdir())
    assert found == [".lock", "model.json", "notes.txt", "training", "weights.safetensors"]


def test_overwrite_brings_back_what_was_there_if_nothing_is_trained(place, capsys):
    run(f"fit book.txt --length 8 --out run {TINY} --steps 1")
    before = written(place / "run")
    line = refused(f"fit book.txt --length 8 --hole o --out run {TINY} --overwrite", capsys)
    assert 'The text holds "o"' in line
    assert written(place / "run") == before


def test_a_warning_of_ids_can_be_acted_on(place, capsys, monkeypatch):
    frame = pd.read_csv("people.csv").assign(key=[f"k{i}" for i in range(40)])
    frame.to_csv("keyed.csv", index=False)
    command = f"fit keyed.csv --out run {TINY} --steps 2"

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("anyorder.training.learner.Learner.learn", interrupted)
        with pytest.raises(SystemExit) as stopped:
            run(command)
    assert stopped.value.code == 130
    said = capsys.readouterr().err
    assert "interrupted: Stopped, and nothing was saved." in said
    options = re.search(r"press Ctrl-C, and give the same command with (.*)", said)[1]
    assert options == "--types key=ignore --overwrite"
    assert (place / "run" / "training").is_dir()
    run(f"{command} {options}")
    assert anyorder.load("run").table_.names == ("age", "job", "zip")


def test_overwrite_removes_nothing_but_a_training(place, capsys):
    fit = f"fit people.csv {TINY} --steps 2 --overwrite --out"
    (place / "mine" / "training").mkdir(parents=True)
    (place / "mine" / "training" / "thesis.txt").write_text("years of work")
    assert 'thesis.txt" is none of it. Move it away' in refused(f"{fit} mine", capsys)
    run(f"{fit} run")
    (place / "run" / "training" / "thesis.txt").write_text("years of work")
    assert 'thesis.txt" is none of it. Move it away' in refused(f"{fit} run", capsys)
    (place / "run" / "training" / "thesis.txt").unlink()
    with FileLock(place / "run" / "training" / ".lock"):
        assert "Another process is training into" in refused(f"{fit} run", capsys)
    (place / "run" / "training").rename(place / "elsewhere")
    (place / "run" / "training").symlink_to(place / "elsewhere")
    assert 'training" is none of it' in refused(f"{fit} run", capsys)
    assert (place / "elsewhere" / "latest").exists()
    assert (place / "mine" / "training" / "thesis.txt").exists()


@pytest.fixture
def earlier(place):
    """A run that was fitted in one piece."""
    run(f"fit people.csv --out run {TINY} --steps 2")
    return place / "run"


AGAIN = f"fit people.csv --out run {TINY} --steps 2 --seed 3"


def test_overwrite_does_not_remove_what_is_trained_on(earlier, capsys):
    shutil.copy("people.csv", earlier / "training" / "events.csv")
    before = written(earlier)
    again = AGAIN.replace("people.csv", "run/training/events.csv")
    assert 'events.csv" is none of it' in refused(f"{again} --overwrite", capsys)
    (earlier / "training" / "events.csv").unlink()
    text = f"fit run/model.json --as text --length 8 --out run {TINY} --steps 2 --overwrite"
    assert 'would remove "run/model.json", which is to be trained on' in refused(text, capsys)
    assert written(earlier) == {path: was for path, was in before.items() if path.exists()}


FOREIGN = {
    "model.json": '{"class_name": "Sequential", "format": "keras"}',
    "weights.safetensors": "weights",
    "training/metrics.jsonl": '{"loss": 1}',
    "training/latest": "global_step100",
    "training/step-00000001/model.json": '{"format": 1}',
    "training/step-1/weights.safetensors": "weights",
    "training/step-00000001/weights.safetensors": "weights",
    "training/tensorboard/events.out.tfevents.1": "events",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_another_program_wrote_is_refused(name, place, capsys):
    path = place / "run" / name
    path.parent.mkdir(parents=True)
    path.write_text(FOREIGN[name])
    assert " is none of it" in refused(f"{AGAIN} --overwrite", capsys)
    assert path.read_text() == FOREIGN[name]


KILLED = """
import os, sys
from anyorder.cli.app import main
from anyorder.training.learner import Learner
Learner.learn = lambda *_: os.kill(os.getpid(), 9)
main(sys.argv[1:])
"""


def test_a_killed_process_leaves_the_earlier_training(earlier, capsys):
    before = written(earlier)
    for _ in range(2):
        command = [sys.executable, "-c", KILLED, *shlex.split(AGAIN), "--overwrite"]
        assert subprocess.run(command, capture_output=True, check=False).returncode == -9
        assert not (earlier / "model.json").exists()
    assert "`--seed` was 0 and is 3 now" in refused(AGAIN, capsys)
    assert written(earlier) == before
    run(f"{AGAIN} --overwrite")
    assert anyorder.load("run").random_state == 3


def test_what_is_called_like_the_earlier_training_stays(earlier, capsys):
    aside = earlier / ASIDE
    before = written(earlier)
    aside.write_text("mine")
    assert f'{ASIDE}" is none of it' in refused(f"{AGAIN} --overwrite", capsys)
    aside.unlink()
    aside.symlink_to(earlier.parent)
    assert f'{ASIDE}" is none of it' in refused(f"{AGAIN} --overwrite", capsys)
    aside.unlink()
    aside.mkdir()
    (aside / "thesis.tex").write_text("years of work")
    assert 'thesis.tex" is none of it' in refused(f"{AGAIN} --overwrite", capsys)
    (aside / "thesis.tex").unlink()
    assert written(earlier) == before


def test_no_two_commands_fit_into_a_folder(earlier, capsys, monkeypatch):
    before = written(earlier)
    with FileLock(earlier / ".lock"):
        for options in ("", "--overwrite"):
            assert 'is training into "run"' in refused(f"{AGAIN} {options}", capsys)
    assert written(earlier) == before

    def overtaken(_, __, *, folder):  # by a program, which holds no lock but that of its training
        folder.mkdir()
        lock.acquire()
        raise CheckpointError("refused")

    lock = FileLock(earlier / "training" / ".lock")
    with monkeypatch.context() as patched:
        patched.setattr("anyorder.tables.model.TableModel.fit", overtaken)
        assert 'is training into "run/training"' in refused(f"{AGAIN} --overwrite", capsys)
    assert lock.is_locked
    assert (earlier / "training" / ".lock").exists()
    lock.release()
    assert "`--seed` was 0 and is 3 now" in refused(AGAIN, capsys)
    assert written(earlier) == before


@pytest.mark.parametrize("number", range(3))
def test_ctrl_c_while_room_is_made(number, earlier, capsys, monkeypatch):
    before, calls, rename = written(earlier), itertools.count(), Path.rename

    def interrupted(path, target):
        if next(calls) == number:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", interrupted)
        with pytest.raises(SystemExit) as stopped:
            run(f"{AGAIN} --overwrite")
    assert stopped.value.code == 130
    assert written(earlier) == before
    said = capsys.readouterr().err
    assert ('training in "run" is back' in said) == (number > 0)


def test_after_ctrl_c_the_command_goes_on_without_overwrite(earlier, capsys, monkeypatch):
    learn = Learner.learn

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)  # heard when the step has ended
        return learn(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "learn", interrupted)
        with pytest.raises(SystemExit) as stopped:
            run(f"{AGAIN} --overwrite")
    assert stopped.value.code == 130
    said = capsys.readouterr().err
    assert "Saved at step 1: the same command without `--overwrite` goes on from this" in said
    assert not (earlier / ASIDE).exists()
    run(AGAIN)
    assert anyorder.load("run").random_state == 3


def test_a_model_is_saved_before_another_command_may_start(earlier, capsys, monkeypatch):
    said = []

    def saved(*_):
        said.append(refused(f"{AGAIN} --overwrite", capsys))

    with monkeypatch.context() as patched:
        patched.setattr("anyorder.tables.model.TableModel.save", saved)
        run(f"{AGAIN} --overwrite")
    assert 'is training into "run"' in said[0]
    assert (earlier / "training" / "latest").exists()
