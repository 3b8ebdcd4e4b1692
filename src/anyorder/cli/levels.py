"""Commands on rows of levels: fit, evaluate and check text and images alike.

Nothing heavy is imported before it is needed: the command line's help reads this module.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from anyorder.cli.options import EvaluateOptions, FitOptions
from anyorder.domains import Checked, Domain

ROWS = 256
"""Default number of chunks or images of an evaluation and of a check."""


class LevelDomain(Domain):
    """A domain whose estimator is a `LevelEstimator`."""

    width = 128

    dimension: ClassVar[str]
    """Word for a variable in a table, such as "character"."""

    rows: ClassVar[str]
    """Word for the rows of the model, such as "chunks"."""

    part: ClassVar[str]
    """Words for the part of the data that is evaluated, such as "its test part"."""

    @abstractmethod
    def read(self, model: Any, source: str) -> Any:
        """Reads data for a model, of which the test part is evaluated."""

    @abstractmethod
    def queries(self, model: Any) -> Mapping[str, str]:
        """Returns descriptions of the queries of an evaluation."""

    @abstractmethod
    def report(self, model: Any, data: Any, **options: Any) -> Any:
        """Returns the `report.page.Page` of a model."""

    def check_report(self, model: Any, run: Path) -> None:
        """Raises a `ConfigError` if there can be no report of a model."""

    def evaluate(self, model: Any, run: Path, source: str, options: EvaluateOptions) -> None:
        """Prints the bits of the test part of the data."""
        from anyorder.cli.console import print_json, show
        from anyorder.cli.runs import check_report, refuse_options, report_options, write_report
        from anyorder.diagnostics.consistency import estimate_json
        from anyorder.errors import check_seed

        check_report(options.report)
        refuse_options(
            {"query": options.query, "given": options.given},
            f'is for tables, and "{run}" holds a model of {self.noun}.',
        )
        if options.report is not None:
            self.check_report(model, run)
        data, rows = self.read(model, source), ROWS if options.rows is None else options.rows
        found = model.evaluate(data, rows=rows, random_state=check_seed(options.seed))
        if options.json:
            bits = {name: estimate_json(estimate) for name, estimate in found.items()}
            print_json({"data": data.name, "bits": bits})
        else:
            words, numbers = self.queries(model), [f"bits a {self.dimension}", self.rows]
            show(
                ["query", *numbers],
                [[words[name], str(bits), str(len(bits.rows))] for name, bits in found.items()],
                title=f"{data.name}: {self.part}; less is better",
                numbers=numbers,
            )
        if options.report is not None:
            page = self.report(model, data, **report_options(run, seed=options.seed))
            write_report(page.html(), options.report)

    def check(
        self, model: Any, source: str, *, rows: int | None, target: str | None, seed: int
    ) -> Checked:
        """Checks a model on rows of the test part of the data."""
        from anyorder.cli.runs import refuse_options

        refuse_options({"target": target}, f"is for tables, and this is a model of {self.noun}.")
        data, rows = self.read(model, source), ROWS if rows is None else rows
        found = model.check(data, rows=rows, random_state=seed, progress=True)
        return Checked(found, f"{found.rows:,} {self.rows} of its test part")


def level_settings(default: Any, shared: FitOptions) -> Any:
    """Returns training settings: the default ones with the budget and the seed of a command."""
    from anyorder.errors import check_seed

    minutes, steps = shared.minutes, shared.steps
    budget = default.minutes if minutes is None and steps is None else minutes
    return replace(default, minutes=budget, steps=steps, seed=check_seed(shared.seed))


def level_flags(model: Any) -> dict[str, Any]:
    """Returns the flags of the size of a network and of its training."""
    from anyorder.cli.resume import size_flags

    settings = model.training_settings()
    budget = {"--minutes": settings.minutes, "--steps": settings.steps, "--seed": settings.seed}
    return {**size_flags(model), **budget}


def note_fitted(name: str, out: Path, done: int | None, held_out: str, example: str) -> None:
    """Notes that a model was fitted, or had been, its held-out likelihood, and what to try."""
    from anyorder.cli.console import note

    state = "Fitted" if done is None else f"Already trained (step {done:,}):"
    note(f'{state} "{name}". Saved in {out}.')
    note(f"{held_out}, given the other half; less is better. Try:")
    note(f"  {example}")


def check_temperature(temperature: float, noun: str) -> None:
    """Refuses a temperature that is not positive and finite; `noun` is what a level is called."""
    from anyorder.errors import ConfigError

    if not 0 < temperature < math.inf:
        raise ConfigError(
            f"`--temperature` must be above 0 and finite; got {temperature:g}. `--greedy` takes "
            f"the most probable {noun} at each step."
        )
