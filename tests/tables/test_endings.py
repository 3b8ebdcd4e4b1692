"""What is said of the end of a training."""

import json

import pytest

from anyorder.tables.advice import LATE_GAIN, ending, late_gain
from anyorder.training.loop import Fit


def written(file, *values, every=50):
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"step": every * (i + 1), "held_out": value} for i, value in enumerate(values)]
    lines.insert(1, {"step": every, "loss": 1.0})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_late_gain_is_that_of_the_second_half(tmp_path):
    file = written(tmp_path / "metrics.jsonl", 2.0, 1.5, 1.25, 1.125)
    assert late_gain(file) == pytest.approx(1.5 - 1.125)
    assert late_gain(written(tmp_path / "once.jsonl", 2.0)) == LATE_GAIN
    assert late_gain(written(tmp_path / "never.jsonl")) == 0
    assert late_gain(written(tmp_path / "past.jsonl", 2.0, 1.5, 1.1, 1.2)) == 0


def test_a_training_that_was_too_short_is_told(tmp_path):
    fit = Fit(step=200, ending="budget", best_step=200)
    written(tmp_path / "member-0" / "metrics.jsonl", 2.0, 1.5, 1.25, 1.125)
    written(tmp_path / "member-1" / "metrics.jsonl", 2.0, 1.5, 1.5, 1.5)
    assert "step 200, held-out rows were still predicted better" in ending(fit, tmp_path)
    written(tmp_path / "member-0" / "metrics.jsonl", 2.0, 1.5, 1.51, 1.49)
    assert ending(fit, tmp_path) == ""
    assert ending(fit, tmp_path / "none") == ""


def test_of_stages_the_last_one_tells(tmp_path):
    fit = Fit(step=200, ending="budget", best_step=200)
    written(tmp_path / "stage-0" / "metrics.jsonl", 2.0, 1.5, 1.25, 1.125)
    written(tmp_path / "stage-8" / "metrics.jsonl", 1.1, 1.1, 1.1, 1.1)
    assert ending(fit, tmp_path) == ""
    written(tmp_path / "stage-8" / "metrics.jsonl", 1.1, 1.0, 0.95, 0.9)
    assert "still predicted better" in ending(fit, tmp_path)


def test_a_training_that_stopped_by_itself_was_long_enough(tmp_path):
    written(tmp_path / "metrics.jsonl", 2.0, 1.0, 1.1, 1.2)
    found = ending(Fit(step=200, ending="patience", best_step=150), tmp_path)
    assert "predicted best at step 150, which is kept" in found
