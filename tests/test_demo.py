"""The demo runs from end to end; here with next to no training."""

import pytest

from anyorder.cli import main
from anyorder.commands import demo


@pytest.fixture
def tiny(monkeypatch):
    for name, value in {"STEPS": 2, "SAMPLES": 500, "DRAWS": 3}.items():
        monkeypatch.setattr(demo, name, value)


@pytest.mark.usefixtures("tiny")
def test_the_demo_shows_a_text_the_paper_and_a_table(tmp_path, capsys):
    main(["demo", "--out", str(tmp_path)])
    shown, said = capsys.readouterr()
    assert shown.count("statement raises an exception if the object is not found") == 3
    assert "Table 7" in shown
    for name in (*demo.COLUMNS, "cultivar"):
        assert f"│ {name} " in shown
    assert "p(proline | alcohol=13.5,hue=1.05)" in shown
    assert "numbers hidden in 30 wines" in said
    assert (tmp_path / "wine" / "query.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("tiny")
def test_without_matplotlib_there_is_no_picture(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "find_spec", lambda _: None)
    main(["demo", "--out", str(tmp_path)])
    assert 'No picture: pip install "anyorder[plot]"' in capsys.readouterr().err
    assert not (tmp_path / "wine" / "query.png").exists()


def test_what_was_hidden_is_not_shown_to_the_model():
    class Recorder:
        def impute(self, frame, **_):
            self.frame = frame
            raise StopIteration

    recorder, truth = Recorder(), demo._wine().iloc[:5]
    with pytest.raises(StopIteration):
        demo._Hidden.made(recorder, truth, 0)
    assert recorder.frame.iloc[0][["flavanoids", "proline", "cultivar"]].isna().all()
    assert recorder.frame.iloc[0][["alcohol", "malic_acid", "hue"]].notna().all()
