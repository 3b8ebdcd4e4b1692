"""KL divergences of `TableModel` from known joints, for every query.

    python -m experiments.known_joints --json

Two joints of four columns: a Gaussian, and a mixture of a category, a number, an amount that is
zero half of the time, and a flag. For every query p(u | e), u and e disjoint, the figure is
KL(truth || model) in nats per row: the mean difference of log-likelihoods over fresh samples.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from cyclopts import App
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from anyorder.cli.app import run
from anyorder.diagnostics.evaluation import Estimate
from anyorder.reproduce.record import Record, Row, check_record
from anyorder.tables.model import TableModel

ROWS, FRESH = 20_000, 2_000

app = App(name="known_joints", help=__doc__)
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Known:
    """A joint with known marginals.

    Args:
        draw: Samples a frame of a number of rows.
        log_marginal: Computes the log density of some columns of a frame.
    """

    draw: Callable[[int, np.random.Generator], pd.DataFrame]
    log_marginal: Callable[[pd.DataFrame, list[str]], Array]


@app.default
def measure(
    *, minutes: float = 3.0, seed: int = 0, json: bool = False, record: Path | None = None
) -> None:
    """Fits both joints and prints the divergences.

    Args:
        minutes: Largest training time of each.
        seed: Seed of the samples.
        json: Print one JSON object, the last line of the output.
        record: File to which the numbers are written with the command and the commit.
    """
    check_record(record)
    rows = []
    for name, known in {"gaussian": gaussian(), "mixed": mixed()}.items():
        rng = np.random.default_rng(seed)
        model = TableModel(minutes=minutes).fit(known.draw(ROWS, rng))
        for (query, given), found in divergences(model, known, known.draw(FRESH, rng)).items():
            words = f"{','.join(query)}|{','.join(given)}"
            rows.append(Row(name, "TableModel", f"kl {words}", found.value, found.se, FRESH))
    command = f"python -m experiments.known_joints --minutes {minutes:g} --seed {seed}"
    kept = Record(command, {"rows": ROWS, "fresh": FRESH}, rows)
    if kept.publish(record, json=json):
        Console().print(_shown(rows))


def divergences(
    model: TableModel, known: Known, fresh: pd.DataFrame
) -> dict[tuple[tuple[str, ...], tuple[str, ...]], Estimate]:
    """Returns KL(truth || model) of every query."""
    found = {}
    for roles in product("qg-", repeat=len(fresh.columns)):
        query = [c for c, role in zip(fresh.columns, roles, strict=True) if role == "q"]
        given = [c for c, role in zip(fresh.columns, roles, strict=True) if role == "g"]
        if query:
            truth = known.log_marginal(fresh, query + given) - known.log_marginal(fresh, given)
            ours = model.log_prob(fresh, query=query, given=given)
            found[tuple(query), tuple(given)] = Estimate(torch.from_numpy(truth - ours))
    return found


def gaussian() -> Known:
    """Returns a Gaussian of four columns with full covariance and scales from 0.001 to 1000."""
    mix = np.random.default_rng(7).normal(size=(4, 4)) + np.eye(4)
    units = np.array([1e-3, 1.0, 10.0, 1e3])
    covariance = (mix @ mix.T) * np.outer(units, units)
    names = ["a", "b", "c", "d"]

    def draw(rows: int, rng: np.random.Generator) -> pd.DataFrame:
        return pd.DataFrame(rng.multivariate_normal(np.zeros(4), covariance, rows), columns=names)

    def log_marginal(frame: pd.DataFrame, columns: list[str]) -> Array:
        if not columns:
            return np.zeros(len(frame))
        places = [names.index(c) for c in columns]
        part, x = covariance[np.ix_(places, places)], frame[columns].to_numpy()
        _, log_determinant = np.linalg.slogdet(2 * math.pi * part)
        return -0.5 * ((x @ np.linalg.inv(part)) * x).sum(axis=1) - 0.5 * log_determinant

    return Known(draw, log_marginal)


def mixed() -> Known:
    """Returns a joint of group, size (normal), amount (zero or lognormal), and a flag by size."""
    share = np.array([0.5, 0.3, 0.2])
    centre, spread = np.array([-1.5, 0.5, 2.0]), np.array([0.5, 1.0, 0.3])
    zero, level = np.array([0.8, 0.4, 0.1]), np.array([0.0, 1.0, 2.0])
    levels = ["low", "middle", "high"]
    grid = np.linspace(-8, 8, 4001)

    def chance(size: Array) -> Array:
        return 1 / (1 + np.exp(-2 * size))

    def normal(x: Array, mean: Array, scale: Array | float) -> Array:
        return np.exp(-0.5 * ((x - mean) / scale) ** 2) / (math.sqrt(2 * math.pi) * scale)

    def draw(rows: int, rng: np.random.Generator) -> pd.DataFrame:
        group = rng.choice(3, rows, p=share)
        size = rng.normal(centre[group], spread[group])
        some = np.exp(rng.normal(level[group], 0.5))
        amount = np.where(rng.random(rows) < zero[group], 0.0, some)
        flag = rng.random(rows) < chance(size)
        names = np.array(levels)[group]
        return pd.DataFrame({"group": names, "size": size, "amount": amount, "flag": flag})

    def log_marginal(frame: pd.DataFrame, columns: list[str]) -> Array:
        total = np.zeros(len(frame))
        for g in range(3):
            part = np.full(len(frame), share[g])
            if "group" in columns:
                part = part * (frame.group == levels[g]).to_numpy()
            if "amount" in columns:
                amount = frame.amount.to_numpy()
                positive = np.where(amount > 0, amount, 1.0)
                some = normal(np.log(positive), level[g], 0.5) / positive
                part = part * np.where(amount == 0, zero[g], (1 - zero[g]) * some)
            part = part * _size_and_flag(frame, columns, g)
            total += part
        return np.log(total)

    def _size_and_flag(frame: pd.DataFrame, columns: list[str], g: int) -> Array:
        size, flag = frame["size"].to_numpy(), frame.flag.to_numpy()
        if "size" in columns:
            found = normal(size, centre[g], spread[g])
            return (
                found * np.where(flag, chance(size), 1 - chance(size))
                if "flag" in columns
                else found
            )
        if "flag" not in columns:
            return np.ones(len(frame))
        yes = float(np.trapezoid(normal(grid, centre[g], spread[g]) * chance(grid), grid))
        return np.where(flag, yes, 1 - yes)

    return Known(draw, log_marginal)


def _shown(rows: list[Row]) -> Table:
    table = Table(title="KL(truth || model), nats per row")
    for title in ("joint", "queries", "mean", "worst", "query"):
        table.add_column(title)
    for name in dict.fromkeys(row.dataset for row in rows):
        mine = [row for row in rows if row.dataset == name]
        worst = max(mine, key=lambda row: row.value)
        mean = sum(row.value for row in mine) / len(mine)
        words = f"{worst.value:.4f} ± {worst.se:.4f}"
        table.add_row(name, str(len(mine)), f"{mean:.4f}", words, worst.metric.removeprefix("kl "))
    return table


if __name__ == "__main__":
    run(app)
