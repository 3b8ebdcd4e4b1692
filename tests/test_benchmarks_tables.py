"""Our table model beside others: the measures, the tasks, and a run with a made-up rival."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm

from anyorder.conditionals.mixture import Mixture
from anyorder.estimators.table import TableModel
from benchmarks.cell_likelihood import Cells, cell_log_prob, log_mass, log_normal_mass
from benchmarks.table_sets import load_set

STEPS = [1.0, 0.5, None, None]


@pytest.fixture(scope="module")
def frame():
    """A whole number with a spike, a coarse one, one that is not rounded, and a category."""
    rng = np.random.default_rng(0)
    size = 120
    whole = np.where(rng.random(size) < 0.3, 0, rng.integers(0, 400, size))
    coarse = np.round(rng.normal(size=size) * 2 + whole / 100) / 2
    return pd.DataFrame(
        {
            "whole": whole,
            "coarse": coarse,
            "real": rng.normal(size=size),
            "kind": np.where(coarse + rng.normal(size=size) > 1, "a", "b"),
        }
    )


@pytest.fixture(scope="module")
def model(frame):
    return TableModel(max_steps=20, layers=1, width=16, heads=2).fit(frame)


def slow_log_prob(model, row, name, known):
    """One cell, by the conditional that users have."""
    conditional = model.conditional(name, given={other: row[other] for other in known})
    step = STEPS[list(row.index).index(name)]
    if name == "kind":
        return np.log(conditional.probabilities()[row[name]])
    if step is None:
        return np.log(conditional.pdf([row[name]])[0])
    below, above = conditional.cdf([row[name] - step / 2, row[name] + step / 2])
    return np.log(above - below)


@pytest.mark.parametrize("name", ["whole", "coarse", "real", "kind"])
@pytest.mark.parametrize("known", [(), ("coarse",), ("whole", "kind"), ("real", "kind", "coarse")])
def test_cells_are_differences_of_cdfs(model, frame, name, known):
    rows, known = frame.iloc[:12], [other for other in known if other != name]
    given = sets(frame, known, rows)
    found = cell_log_prob(model, rows, query=sets(frame, [name], rows), given=given, steps=STEPS)
    slow = [slow_log_prob(model, row, name, known) for _, row in rows.iterrows()]
    # The slow way subtracts float32 CDFs: 1e-7 of cells that hold some thousandths.
    np.testing.assert_allclose(found.numpy(), slow, atol=2e-3)


def sets(frame, names, rows):
    return torch.tensor([[column in names for column in frame.columns]] * len(rows))


def test_along_a_path_logarithms_are_added(model, frame):
    rows, nothing = frame.iloc[:20], sets(frame, [], frame.iloc[:20])
    ask = partial(cell_log_prob, model, given=nothing, steps=STEPS)
    both = [
        ask(rows.assign(kind=level), query=sets(frame, ["whole", "kind"], rows)) for level in "ab"
    ]
    first = ask(rows, query=sets(frame, ["whole"], rows))
    torch.testing.assert_close(torch.stack(both).logsumexp(0), first, atol=1e-5, rtol=0)
    smooth = ask(rows, query=sets(frame, ["real", "kind"], rows))
    expected = model.log_prob(rows, query=["real", "kind"])
    np.testing.assert_allclose(smooth.numpy(), expected, atol=1e-4)


def test_cells_of_a_column_add_up_to_one(model, frame):
    values = np.arange(-3000, 6000)
    rows = frame.iloc[[0] * len(values)].assign(whole=values)
    query = torch.tensor([True, False, False, False]).expand(len(rows), -1)
    logs = cell_log_prob(model, rows, query=query, given=torch.zeros_like(query), steps=STEPS)
    assert float(logs.exp().sum()) == pytest.approx(1, abs=1e-3)  # heavy tails go on


def test_normal_masses_keep_their_digits_in_both_tails():
    low = torch.tensor([-0.5, 8.0, -9.0, 30.0], dtype=torch.float64)
    found = log_normal_mass(low, low + 1)
    assert float(found[0]) == pytest.approx(np.log(0.3829249225480262))
    assert float(found[1]) == pytest.approx(np.log(norm.sf(8) - norm.sf(9)))
    torch.testing.assert_close(found[1], found[2])
    assert found.isfinite().all()


def test_without_a_step_the_density_is_in_the_units_of_the_column():
    normal = Mixture(*torch.zeros(3, 1, 1, dtype=torch.float64))
    nothing = torch.full((1,), torch.nan, dtype=torch.float64)
    value, slope = torch.tensor([[0.3], [0.7]], dtype=torch.float64)
    cells = Cells(value, nothing, nothing, slope)
    expected = -0.5 * 0.09 - 0.5 * np.log(2 * np.pi) + 0.7
    assert float(log_mass(normal, cells)) == pytest.approx(expected)


def test_tables_in_one_piece_are_split(tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "abalone.csv").write_text("M,0.4,0.3,0.1,0.5,0.2,0.1,0.15,15\n" * 20)
    wine = "7.4,0.7,0,1.9,0.076,11,34,0.9978,3.51,0.56,9.4,5\n"
    (folder / "winequality-red.csv").write_text(wine * 10)
    header = ";".join(f'"c{i}"' for i in range(12)) + "\n"
    (folder / "winequality-white.csv").write_text(header + wine.replace(",", ";") * 10)
    abalone, both = load_set(tmp_path, "abalone"), load_set(tmp_path, "wine")
    assert (len(abalone.train), len(abalone.test)) == (18, 2)
    assert both.train.columns[-1] == "color"
    assert set(both.train.color) == {"red", "white"}
    assert both.train.quality.eq(5).all()
