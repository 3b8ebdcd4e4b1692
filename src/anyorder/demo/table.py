"""The demo's second act: a table with gaps, asked about all sorts of things."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch

from anyorder.commands.asking import query_table
from anyorder.commands.showing import note, show
from anyorder.data.table import TableSchema
from anyorder.demo.answer import ASKED, KNOWN, answer_section
from anyorder.demo.hidden import TITLES, Hidden
from anyorder.demo.telling import command, say
from anyorder.estimators.table import TableModel
from anyorder.evaluation import Estimate
from anyorder.report.page import Section
from anyorder.report.sections import NATS
from anyorder.report.table import table_report

MINUTES, STEPS = 1.0, 400
"""The budget of the training, minutes of the processor: more would learn its few rows by heart."""

HELD_OUT = 60
"""Rows that are kept from training."""

QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "joint": ("p(all that a row has)", {}),
    "marginal": ("p(species, island)", {"query": ["species", "island"]}),
    "conditional": ("p(sex | body_mass_g)", {"query": "sex", "given": ["body_mass_g"]}),
}
"""A question of each kind: in words, and as arguments of `log_prob`."""


def penguins() -> pd.DataFrame:
    """344 penguins of three species, measured near Palmer Station; 19 cells are missing.

    Reference:
        Horst, Hill and Gorman (2020), palmerpenguins: Palmer Archipelago penguin data. CC0.
    """
    from palmerpenguins import load_penguins

    found: pd.DataFrame = load_penguins().drop(columns="year")
    return found


class TableAct(NamedTuple):
    """What a page tells of the penguins."""

    answers: list[Section]
    """To questions, and how good they are."""
    samples: Section
    """Of the model, beside real rows."""
    about: list[Section]
    """How far to trust the model, and how it was made."""


def table_act(run: Path, seed: int) -> TableAct:
    """Fits the penguins, and asks."""
    rows = penguins().sample(frac=1, random_state=seed, ignore_index=True)
    learnt, kept = rows.iloc[:-HELD_OUT], rows.iloc[-HELD_OUT:]
    gaps = int(learnt.isna().sum().sum())
    say(f"A table: {len(learnt)} penguins, {gaps} cells unknown. Its columns:")
    show(["column", "taken for", "details"], TableSchema.infer(learnt).summary())
    budget = {"minutes": MINUTES, "clock": "processor", "max_steps": STEPS}
    model = TableModel(**budget, random_state=seed, progress=True)  # type: ignore[arg-type]
    model.fit(learnt, folder=run / "training")
    model.save(run)
    _ask(model, kept)
    hidden = Hidden.made(model, kept, seed)
    say("A penguin that it has not seen, with gaps, and what the model makes of them:")
    show(TITLES, hidden.first_row())
    say(hidden.sentence())
    _query(run, seed)
    data = f"{len(kept)} held-out penguins"
    training = run / "training"
    page = table_report(model, kept, name="penguins", data=data, training=training, seed=seed)
    guessed, samples, *about = (
        replace(part, title=f"Penguins: {part.title[0].lower()}{part.title[1:]}")
        for part in page.sections
    )
    answer = answer_section(model, run, data=_described(learnt, kept), seed=seed)
    return TableAct([answer, hidden.section(), guessed], samples, about)


def _described(learnt: pd.DataFrame, kept: pd.DataFrame) -> str:
    """What the rows are, how many, and where they are from."""
    return (
        f"The data: {len(learnt) + len(kept)} penguins of three species, a row each, with their "
        "island, sex, body mass and the sizes of bill and flippers. They were measured near Palmer "
        "Station, Antarctica, from 2007 to 2009; the package palmerpenguins has them. A model of "
        f"this table was trained on {len(learnt)} of them, {int(learnt.isna().sum().sum())} "
        f"cells unknown; the other {len(kept)} were kept for tests."
    )


def _ask(model: TableModel, kept: pd.DataFrame) -> None:
    """A question of each kind, about rows that were held out."""
    whole = kept.dropna()
    lines = []
    for kind, (question, arguments) in QUESTIONS.items():
        logs = model.log_prob(whole, **arguments)
        lines.append([kind, question, str(Estimate(torch.from_numpy(logs)))])
    count = f"{len(kept)} penguins that it has not seen, {len(whole)} have no gaps"
    say(f"Of {count}. Of these it says:")
    show(["kind", "question", "nats a row"], lines, numbers=["nats a row"])
    note(NATS)


def _query(run: Path, seed: int) -> None:
    say("What it says of two columns, given two others, one of them as an interval:")
    plot = run / "query.png"
    command("query", run, "--of", ASKED, "--given", KNOWN, "--plot", plot)
    query_table(run, of=ASKED, given=KNOWN, plot=plot, seed=seed, json=False)
