"""The demo runs from end to end; here with next to no training."""

import re
import subprocess
import sys
from html import unescape

import pandas as pd
import pytest

from anyorder.cli.app import main
from anyorder.demo import NEEDED, show
from anyorder.report.sections import NATS


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(show, "STEPS", 2)
    monkeypatch.setattr(show, "DRAWS", 3)
    monkeypatch.setattr(show, "DIGIT_STEPS", 2)
    monkeypatch.setattr(show, "IMAGES_EVALUATED", 8)


@pytest.mark.usefixtures("tiny")
def test_the_demo_shows_text_a_table_and_images(tmp_path, capsys):
    main(["demo", "--out", str(tmp_path)])
    shown, said = capsys.readouterr()
    assert shown.count("statement raises an exception if the object is not found") == 3
    for name in show.penguins():
        assert f"│ {name} " in shown
    for kind in show.QUERIES:
        assert f"│ {kind} " in shown
    assert f"p(body_mass_g | {show.GIVEN})" in shown
    assert "numbers hidden in 58 penguins" in said
    for picture in ("penguins/query.png", "digits/grid.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    page = unescape((tmp_path / "report.html").read_text())
    titles = re.findall("<h2>(.*?)</h2>", page)
    assert titles[:6] == [
        show.TITLE,
        "A penguin with missing values, imputed",
        "Penguins: prediction of each column from the others",
        "Text: holes and fills",
        "Images: inpainted parts",
        "Penguins: samples beside real rows",
    ]
    assert titles[-2:] == ["Penguins: how it was trained", "Penguins: settings and versions"]
    assert "344 penguins of three species, a row each" in page
    assert page.count(NATS) == 1
    assert "nats" not in page[: page.index("<h2>Penguins: what evidence is worth")]
    assert "report.html (open it in a browser)" in said
    assert "Of 60 held-out penguins, 58 have no missing values." in said
    assert "<dl>" not in page


def test_fills_are_told_in_the_steps_of_their_column():
    found = show._filled(pd.Series([46.1, 46.2, 50.3, 53.8, 53.9]))
    assert found == ("50.3", "90% in 46.1 .. 53.9")
    found = show._filled(pd.Series(["Dream", "Biscoe", "Biscoe", "Biscoe"]))
    assert found == ("Biscoe", "Biscoe 75%, Dream 25%")


def test_a_command_that_is_not_found_yet_is_preceded_by_what_finds_it(tmp_path, monkeypatch):
    scripts = tmp_path / ".venv" / "bin"
    scripts.mkdir(parents=True)
    (scripts / "activate").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.executable", str(scripts / "python"))
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert show.activation() == [". .venv/bin/activate"]
    monkeypatch.setattr("shutil.which", lambda _: str(scripts / "anyorder"))
    assert show.activation() == []


@pytest.mark.parametrize("name", NEEDED)
def test_what_it_needs_is_said(name, tmp_path):
    """In a process of its own, in which nothing that needs the package was imported yet."""
    script = f"import sys; sys.modules[{name!r}] = None; from anyorder.cli.app import main; main()"
    command = [sys.executable, "-c", script, "demo", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert 'pip install "anyorder[demo]"' in done.stderr
    assert "Traceback" not in done.stderr


def test_what_was_hidden_is_not_shown_to_the_model():
    class Recorder:
        def impute(self, frame, **_):
            self.frame = frame
            raise StopIteration

    recorder, truth = Recorder(), show.penguins().iloc[:5]
    with pytest.raises(StopIteration):
        show.Hidden.made(recorder, truth, 0)
    first = recorder.frame.iloc[0]
    assert first[list(show.HIDDEN)].isna().all()
    assert first.drop(list(show.HIDDEN)).notna().all()
