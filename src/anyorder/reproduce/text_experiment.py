"""The experiments with models of text: what Table 1 and Figure 3 train and measure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from anyorder.data.text import Crops, chunks
from anyorder.evaluation import Estimate
from anyorder.model import AnyOrderModel
from anyorder.reproduce.catalogue import Entry
from anyorder.reproduce.experiment import Outcome, Study, run_experiment
from anyorder.reproduce.options import ExperimentOptions
from anyorder.reproduce.text_catalogue import FIGURE3, TABLE1
from anyorder.reproduce.text_models import (
    SCALES,
    VALID_ROWS,
    Scale,
    build,
    held_out_bits,
    read_text,
)
from anyorder.training.fit import Validation

CATALOGUE: Mapping[str, Entry] = {**TABLE1, **FIGURE3}

Measure = Callable[[AnyOrderModel, Tensor, int], dict[str, Estimate]]
"""From a trained model, test rows and a seed to estimates; a function of a module."""


def run_text_experiment(
    name: str, entries: Mapping[str, Entry], measure: Measure, options: ExperimentOptions
) -> Outcome:
    """Trains and measures the models of an experiment.

    Args:
        name: Of the experiment.
        entries: Its models.
        measure: What is measured.
        options: The choices of the user.
    """
    options.check(SCALES, entries)
    study = TextStudy(SCALES[options.scale], options.data, measure)
    names = options.models or list(entries)
    return run_experiment(name, names, study, options.out / options.scale, options)


@dataclass(frozen=True)
class TextStudy(Study):
    """Models of one text.

    Args:
        scale: How large.
        data: Where the text is; see `read_text`.
        measurement: What is measured.
    """

    scale: Scale
    data: Path | None
    measurement: Measure

    catalogue: ClassVar[Mapping[str, Entry]] = CATALOGUE
    unit: ClassVar[str | None] = "bits"

    @property
    def data_name(self) -> str:
        """What to call the text."""
        return read_text(self.data).name

    @property
    def num_variables(self) -> int:
        """The length of a chunk."""
        return self.scale.length

    def build(self, entry: Entry) -> AnyOrderModel:
        """See `text_models.build`."""
        return build(entry, self.scale, read_text(self.data).alphabet)

    def rows(self) -> Crops:
        """Chunks that begin anywhere."""
        return Crops(read_text(self.data).train, self.scale.length)

    def held_out(self, entry: Entry) -> Validation:
        """Marginal bits, whatever the model is trained on."""
        del entry
        x = chunks(read_text(self.data).valid, self.scale.length, VALID_ROWS)
        return lambda model: held_out_bits(model, x)

    def measure(self, model: AnyOrderModel, seed: int) -> dict[str, Estimate]:
        """What the experiment measures, on chunks of the test text."""
        x = chunks(read_text(self.data).test, self.scale.length, self.scale.rows)
        return self.measurement(model, x, seed)
