"""Models that an earlier version saved load, and answer what they answered then."""

import json
from pathlib import Path

import numpy as np
import pytest

import anyorder as ao
from tests.saved_runs.write import image_answers, table_answers, text_answers

RUNS = Path(__file__).parent / "saved_runs" / "0.1.0"
ANSWERS = json.loads((RUNS / "answers.json").read_text())
ASK = {
    "table": table_answers,
    "ensemble": table_answers,
    "text": text_answers,
    "image": image_answers,
}
# float32 sums in another order: an answer of 2,000 moves in its seventh digit.
CLOSE = {"rel": 1e-6, "abs": 1e-6}


@pytest.mark.parametrize("name", ASK)
def test_a_saved_run_answers_as_it_did(name):
    found = ASK[name](ao.load(RUNS / name))
    assert found.keys() == ANSWERS[name].keys()
    for question, answer in found.items():
        assert_alike(answer, ANSWERS[name][question])


def assert_alike(found, expected):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_alike(found[key], value)
    elif isinstance(expected, list) and any(isinstance(item, str | list) for item in expected):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    elif isinstance(expected, str):
        assert_alike_cells(found, expected)
    else:
        assert np.asarray(found) == pytest.approx(np.asarray(expected), nan_ok=True, **CLOSE)


def assert_alike_cells(found, expected):
    """Numbers as text are compared as numbers."""
    try:
        number = float(expected)
    except ValueError:
        assert found == expected
    else:
        assert float(found) == pytest.approx(number, nan_ok=True, **CLOSE)
