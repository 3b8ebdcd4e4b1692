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
    """Options of `table1` and `figure3`."""

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
    """Options of experiments on several data sets in one folder."""

    sets: Sets = None

    data_word: ClassVar[str] = "DIR"

    def command(self, name: str) -> str:
        """Returns the command line of these options, with the data sets."""
        words = [super().command(name), *(["--sets", *self.sets] if self.sets else [])]
        return " ".join(words)


@dataclass(frozen=True)
class TablesOptions(SetsOptions):
    """Options of `table4` and `table5`."""

    data: Tables = None
    out: Runs = Path("runs/uci")


@dataclass(frozen=True)
class ImagesOptions(SetsOptions):
    """Options of `table2` and `table3`."""

    data: ImageData = None
    out: Runs = Path("runs/images")
    sets: ImageSets = None


@dataclass(frozen=True)
class RobotOptions(ExperimentOptions):
    """Options of `table6`."""

    data: RobotData = None
    out: Runs = Path("runs/robot")

    data_word: ClassVar[str] = "DIR"
