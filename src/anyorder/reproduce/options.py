"""What one may choose of an experiment in which models are trained and compared."""

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
    """The options of `table1` and `figure3`.

    Args:
        scale: "tiny" (seconds), "small" (the same time for each model) or "paper" (a GPU).
        data: text8, or the folder that holds it; without it, the text that ships with Python.
        out: Where runs go; the same command goes on with them.
        models: Which models; all by default.
        minutes: Of training for each model, in place of the scale's budget.
        at_once: How many models are trained at a time, one thread each.
        seed: Of the questions that are evaluated.
        json: Whether to print one JSON object in place of the table.
        record: A file to which the numbers are written with the command and the commit.
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
    """What stands for the data in a command for the record, wherever it was."""

    def check(self, scales: Iterable[str], names: Iterable[str]) -> None:
        """Refuses what cannot be done before any work is."""
        # Not above: they bring torch, and a help text does not wait for it.
        from anyorder.errors import check_choice, check_count, check_seed
        from anyorder.reproduce.record import check_record

        check_choice("scale", self.scale, scales)
        check_count("at_once", self.at_once)
        check_seed(self.seed)
        check_record(self.record)
        for name in self.models or ():
            check_choice("models", name, names)

    def command(self, name: str) -> str:
        """The command as it would be typed: options that are None were left out."""
        data = self.data and self.data_word
        given = {"scale": self.scale, "data": data, "minutes": self.minutes, "seed": self.seed}
        words = [f"--{key} {value}" for key, value in given.items() if value is not None]
        words += ["--models", *self.models] if self.models else []
        return " ".join(["anyorder reproduce", name, *words])


@dataclass(frozen=True)
class SetsOptions(ExperimentOptions):
    """Options of experiments on several data sets, which lie in one folder.

    Args:
        sets: Which data sets.
    """

    sets: Sets = None

    data_word: ClassVar[str] = "DIR"

    def command(self, name: str) -> str:
        """The command as it would be typed, with its data sets."""
        words = [super().command(name), *(["--sets", *self.sets] if self.sets else [])]
        return " ".join(words)


@dataclass(frozen=True)
class TablesOptions(SetsOptions):
    """The options of `table4` and `table5`.

    Args:
        data: The folder with MAF's data sets; without it, a table that ships with scikit-learn.
        out: Where runs go; the same command goes on with them.
    """

    data: Tables = None
    out: Runs = Path("runs/uci")


@dataclass(frozen=True)
class ImagesOptions(SetsOptions):
    """The options of `table2` and `table3`.

    Args:
        data: The folder with the sets of images; without it, the digits of scikit-learn.
        out: Where runs go; the same command goes on with them.
        sets: Which of digits, mnist, binarized_mnist, cifar10 and imagenet32.
    """

    data: ImageData = None
    out: Runs = Path("runs/images")
    sets: ImageSets = None


@dataclass(frozen=True)
class RobotOptions(ExperimentOptions):
    """The options of `table6`.

    Args:
        data: The folder with the demonstrations; without it, a toy of the kitchen.
        out: Where runs go; the same command goes on with them.
        models: Which rows of the table.
        minutes: Of training for each policy, of the processor, in place of the scale's steps.
    """

    data: RobotData = None
    out: Runs = Path("runs/robot")

    data_word: ClassVar[str] = "DIR"
