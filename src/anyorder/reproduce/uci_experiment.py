"""The experiments with the public tables: what Tables 4 and 5 train and measure.

Networks see columns with mean 0 and deviation 1; likelihoods are in the units of MAF's files, in
which published numbers are, so that the log of each asked column's scale is taken off.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import process_time
from typing import ClassVar

import torch
from torch import Tensor

from anyorder.data.uci import Numbers, bundled_numbers, load_uci
from anyorder.evaluation import Estimate
from anyorder.model import AnyOrderModel
from anyorder.queries import log_prob
from anyorder.query_laws import Query
from anyorder.reproduce.catalogue import Entry
from anyorder.reproduce.experiment import Study
from anyorder.reproduce.uci_catalogue import UCI_MODELS
from anyorder.reproduce.uci_models import UciScale, build
from anyorder.training.fit import Validation
from anyorder.training.rows import Rows

VALID_ROWS, VALID_BATCH = 512, 16
"""Held-out rows while training, and how many of them questions are drawn for at a time: an
objective may draw questions of one size at a time."""

PARTS = 8
"""Of the test rows, each timed by itself."""

MILLISECONDS = "milliseconds"
"""The metric of time: of the processor, for all questions about a row."""

Questions = Callable[[int, int, int], dict[str, Query]]
"""From N, a number of rows and a seed to questions by their names; a function of a module."""


@dataclass(frozen=True)
class UciStudy(Study):
    """Models of one table of numbers.

    Args:
        dataset: Which one; None is the table that ships with scikit-learn.
        scale: How large.
        data: The folder with the data sets.
        questions: What is asked about the test rows.
    """

    dataset: str | None
    scale: UciScale
    data: Path | None
    questions: Questions

    catalogue: ClassVar[Mapping[str, Entry]] = UCI_MODELS
    unit: ClassVar[str | None] = None

    @property
    def numbers(self) -> Numbers:
        """The table."""
        return read_numbers(self.dataset, self.data)

    @property
    def data_name(self) -> str:
        """What to call the table."""
        return self.numbers.name

    @property
    def num_variables(self) -> int:
        """The columns."""
        return self.numbers.train.shape[1]

    def build(self, entry: Entry) -> AnyOrderModel:
        """See `uci_models.build`."""
        return build(entry, self.scale, self.num_variables)

    def rows(self) -> Rows:
        """The training rows, with noise."""
        noise = self.scale.noise / self._spread()
        return Rows(self._scaled(self.numbers.train), seed=self.settings.seed, noise=noise)

    def held_out(self, entry: Entry) -> Validation:
        """The loss that the model is trained on, in bits a variable."""
        x, objective = self._scaled(evenly(self.numbers.valid, VALID_ROWS)), entry.objective

        @torch.no_grad()
        def surprise(model: AnyOrderModel) -> float:
            asked, source = objective(self.num_variables), torch.Generator().manual_seed(0)
            # Energies are normalised as in training: quadrature would take longer than it.
            model.conditionals.train()
            losses = []
            for rows in x.split(VALID_BATCH):
                drawn = asked.draw(model, len(rows), generator=source)
                there = tuple(part.to(model.device) for part in drawn)
                losses.append(asked.loss(model, rows.to(model.device), there))
            model.conditionals.eval()
            return float(torch.cat(losses).mean()) / math.log(2)

        return surprise

    def measure(self, model: AnyOrderModel, seed: int) -> dict[str, Estimate]:
        """Log-likelihoods of the questions in nats, and the time that they took."""
        x = self._scaled(evenly(self.numbers.test, self.scale.rows))
        questions = self.questions(self.num_variables, len(x), seed)
        generator, log_spread = torch.Generator().manual_seed(seed), self._spread().double().log()
        nats: dict[str, list[Tensor]] = {metric: [] for metric in questions}
        times = []
        for part in torch.arange(len(x)).tensor_split(min(PARTS, len(x))):
            began = process_time()
            for metric, (given, query) in questions.items():
                asked = {"query": query[part], "given": given[part], "generator": generator}
                logs = log_prob(model, x[part], **asked).cpu()  # type: ignore[arg-type]
                nats[metric].append(logs - query[part].double() @ log_spread)
            times.append(1000 * (process_time() - began) / len(part))
        found = {metric: Estimate(torch.cat(logs)) for metric, logs in nats.items()}
        return found | {MILLISECONDS: Estimate(torch.tensor(times, dtype=torch.float64))}

    def _scaled(self, x: Tensor) -> Tensor:
        return (x - self.numbers.train.mean(dim=0)) / self._spread()

    def _spread(self) -> Tensor:
        return self.numbers.train.std(dim=0)


@lru_cache(maxsize=1)  # an experiment asks for it again and again
def read_numbers(dataset: str | None, folder: Path | None) -> Numbers:
    """One of the public data sets, or the table that ships with scikit-learn."""
    if dataset is None or folder is None:
        return bundled_numbers()
    return load_uci(dataset, folder)


def evenly(x: Tensor, rows: int) -> Tensor:
    """At most so many rows, evenly spread."""
    return x[torch.linspace(0, len(x) - 1, min(rows, len(x))).round().long()]
