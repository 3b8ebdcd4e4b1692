"""Options of the `reproduce` commands that train and compare models.

This module does not import torch, so that `anyorder --help` is fast.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from anyorder.cli.options import (
    AtOnce,
    Data,
    ImageData,
    ImageSets,
    Json,
    KeptIn,
    Minutes,
    Names,
    RobotData,
    Runs,
    Scale,
    Seed,
    Sets,
    Tables,
)


@dataclass(frozen=True)
class ExperimentOptions:
    """Options of `table1` and `figure3`.

    Args:
        scale: "tiny" (seconds), "small" (the same time for each model) or "paper" (a GPU).
        data: File or folder of text8; by default the text that ships with Python.
        out: Folder of the runs; the same command resumes them.
        models: Names of the models; all by default.
        minutes: Training time of each model, in place of the scale's budget.
        at_once: Number of models that are trained at a time, with one thread each.
        seed: Seed of the test queries.
        json: Prints one JSON object in place of the table.
        record: File to which the numbers are written with the command and the commit.
    """

    scale: Scale = "tiny"
    data: Data = None
    out: Runs = Path("runs/text")
    models: Names = None
    minutes: Minutes = None
    at_once: AtOnce = 1
    seed: Seed = 0
    json: Json = False
    record: KeptIn = None

    data_word: ClassVar[str] = "text8"
    """Placeholder of the data's path in the command of a record."""

    def check(self, scales: Iterable[str], names: Iterable[str]) -> None:
        """Raises on invalid options, before any work."""
        # Imported here because they import torch, which a help text does not need.
        from anyorder.errors import check_choice, check_count, check_seed
        from anyorder.reproduce.record import check_record

        check_choice("scale", self.scale, scales)
        check_count("at_once", self.at_once)
        check_seed(self.seed)
        check_record(self.record)
        for name in self.models or ():
            check_choice("models", name, names)

    def command(self, name: str) -> str:
        """Returns the command line of these options; options that are None are left out."""
        data = self.data and self.data_word
        given = {"scale": self.scale, "data": data, "minutes": self.minutes, "seed": self.seed}
        words = [f"--{key} {value}" for key, value in given.items() if value is not None]
        words += ["--models", *self.models] if self.models else []
        return " ".join(["anyorder reproduce", name, *words])


@dataclass(frozen=True)
class SetsOptions(ExperimentOptions):
    """Options of experiments on several data sets in one folder.

    Args:
        sets: Names of the data sets.
    """

    sets: Sets = None

    data_word: ClassVar[str] = "DIR"

    def command(self, name: str) -> str:
        """Returns the command line of these options, with the data sets."""
        words = [super().command(name), *(["--sets", *self.sets] if self.sets else [])]
        return " ".join(words)


@dataclass(frozen=True)
class TablesOptions(SetsOptions):
    """Options of `table4` and `table5`.

    Args:
        data: Folder of MAF's data sets; by default a table that ships with scikit-learn.
        out: Folder of the runs; the same command resumes them.
    """

    data: Tables = None
    out: Runs = Path("runs/uci")


@dataclass(frozen=True)
class ImagesOptions(SetsOptions):
    """Options of `table2` and `table3`.

    Args:
        data: Folder of the image data sets; by default the digits of scikit-learn.
        out: Folder of the runs; the same command resumes them.
        sets: Any of digits, mnist, binarized_mnist, cifar10 and imagenet32.
    """

    data: ImageData = None
    out: Runs = Path("runs/images")
    sets: ImageSets = None


@dataclass(frozen=True)
class RobotOptions(ExperimentOptions):
    """Options of `table6`.

    Args:
        data: Folder of the demonstrations; by default a toy kitchen.
        out: Folder of the runs; the same command resumes them.
        models: Rows of the table.
        minutes: CPU minutes of training for each policy, in place of the scale's steps.
    """

    data: RobotData = None
    out: Runs = Path("runs/robot")

    data_word: ClassVar[str] = "DIR"
