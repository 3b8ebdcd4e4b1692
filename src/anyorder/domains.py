"""Domains: the contract through which the shells know tables, text, images and whatever comes next.

A domain owns everything that depends on what its variables are: files, schema, estimator, answers.
The command line, the server and the reports know it through `Domain`; no shell imports a domain.
Three domains are built in; others are found by the entry point group "anyorder.domains", or are
added with `register`:

    [project.entry-points."anyorder.domains"]
    melodies = "melodies.domain:MELODIES"

Nothing heavy is imported here, nor in the module of a domain object: `anyorder --help` reads the
options of all domains.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, NamedTuple

BUILT_IN = (
    "anyorder.tables.domain:TABLES",
    "anyorder.images.domain:IMAGES",
    "anyorder.text.domain:TEXT",
)

GROUP = "anyorder.domains"
"""Entry point group in which packages name their domains."""


class Description(NamedTuple):
    """The facts about a fitted model that `anyorder info` prints.

    Args:
        document: Values for JSON.
        facts: Names and values for people.
        names: Names of the variables, for the words of its query law.
        columns: Headings and rows of a table of the variables, if there is one.
    """

    document: Mapping[str, Any]
    facts: Sequence[tuple[str, str]]
    names: Sequence[str]
    columns: tuple[Sequence[str], Sequence[Sequence[Any]]] | None = None


class Grid(NamedTuple):
    """A table to print; the first column holds words, the others numbers."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


class Checked(NamedTuple):
    """A consistency and calibration check of a model on a file.

    Args:
        check: A `diagnostics.check.Check`.
        size: The amount of data that was read, in words.
        trained_on: True if these are the rows that the model was trained on.
        document: More values for JSON.
        grids: More tables for people.
    """

    check: Any
    size: str
    trained_on: bool = False
    document: Mapping[str, Any] = {}
    grids: Sequence[Grid] = ()


class Domain(ABC):
    """A kind of data: recognises and fits its files, and answers queries of its models.

    The estimator of a domain has the attributes `domain`, which is equal to `name`, and `model_`,
    its `AnyOrderModel` once it is fitted; its `save(folder)` notes `{"domain": name}`.
    """

    name: ClassVar[str]
    """Name in run folders and for `fit --as`, such as "table"."""

    noun: ClassVar[str]
    """Words for what a model is of, such as "a table"."""

    plural: ClassVar[str]
    """Words for what an option is for, such as "tables"."""

    command: ClassVar[str]
    """A command that queries a model of this domain, such as "query"."""

    sources: ClassVar[Sequence[str]]
    """Words for what `fit` accepts, such as "a table (.csv, .tsv, .parquet)"."""

    fit_options: ClassVar[type]
    """Frozen dataclass of the flags that `fit` takes for this domain only, all None by default."""

    width: ClassVar[int]
    """Default width of the network."""

    commands: ClassVar[Sequence[Callable[..., None]]] = ()
    """Commands of its own, as functions whose arguments are the flags."""

    named_runs: ClassVar[Mapping[str, Path]] = {}
    """Run folders that are known by a name, such as "shipped"."""

    reads_any_file: ClassVar[bool] = False
    """True for the domain that takes files which no other recognises."""

    @abstractmethod
    def recognises(self, source: str) -> bool:
        """Returns whether a file, a folder or a name is of this domain."""

    def refuse(self, source: str) -> None:  # noqa: B027 (most domains have nothing to refuse)
        """Raises a `ConfigError` if a file that nobody recognises looks like one of this domain."""

    @abstractmethod
    def fit(self, source: str, shared: Any, own: Any) -> None:
        """Fits a model and saves it.

        Args:
            source: File, folder or name, as the user typed it.
            shared: The `cli.options.FitOptions`.
            own: The `fit_options`.
        """

    @abstractmethod
    def open(self, saved: Any, folder: str | Path) -> Any:
        """Returns the estimator of a `saving.checkpoint.SavedModel`; `folder` is for messages."""

    @abstractmethod
    def evaluate(self, model: Any, run: Path, source: str, options: Any) -> None:
        """Prints how well a model predicts a file, and writes a report if one is asked for.

        Args:
            model: The estimator.
            run: Its folder.
            source: File, folder or name, as the user typed it.
            options: The `cli.options.EvaluateOptions`.
        """

    @abstractmethod
    def check(
        self, model: Any, source: str, *, rows: int | None, target: str | None, seed: int
    ) -> Checked:
        """Checks a model on at most `rows` rows of a file; `target` is a variable to look at."""

    @abstractmethod
    def describe(self, model: Any) -> Description:
        """Returns the facts about a fitted model."""

    @abstractmethod
    def routes(self, model: Any, dispatcher: Any, *, name: str, run: str) -> Any:
        """Returns the `fastapi.APIRouter` of a model.

        Args:
            model: The estimator.
            dispatcher: The `serve.batching.Dispatcher` to which routes hand their queries.
            name: Name of the model on the page.
            run: Run folder as the page shows it.
        """


_registered: dict[str, Domain] = {}


def register(domain: Domain) -> None:
    """Adds a domain, or replaces the one of the same name."""
    if not isinstance(domain, Domain):
        raise TypeError(f"`domain` must be a Domain; got {type(domain).__name__}.")
    _registered[domain.name] = domain


def domains() -> list[Domain]:
    """Returns all domains: built in, registered, and of installed packages."""
    places = [*BUILT_IN, *(entry.value for entry in metadata.entry_points(group=GROUP))]
    found = {domain.name: domain for domain in map(resolve_name, places)} | _registered
    return sorted(found.values(), key=lambda domain: domain.reads_any_file)


def domain_of(model: Any) -> Domain:
    """Returns the domain of an estimator."""
    return next(domain for domain in domains() if domain.name == model.domain)


def domain_named(name: str, argument: str = "domain") -> Domain:
    """Returns the domain of a name; an error calls it by the argument that it came from."""
    from anyorder.errors import check_choice

    found = {domain.name: domain for domain in domains()}
    check_choice(argument, name, found)
    return found[name]


def load(folder: str | Path, *, device: Any = None) -> Any:
    """Loads a model of any domain.

    Args:
        folder: Run folder, written by `save` or `anyorder fit`. If the training was stopped before
            the model was saved, its last checkpoint is loaded. "shipped" is the text model that
            comes with the package.
        device: Device to load it to: "cpu", "cuda", "mps" or a torch.device; None is the GPU if
            there is one.
    """
    loaded = as_model(read_saved(folder, device=device), folder)
    loaded.device = device
    return loaded


def opened(run: Path) -> Any:
    """Loads the model of a run folder, or "shipped"; warns if its training was stopped early."""
    from anyorder.errors import AnyOrderWarning

    model = load(run)
    if (run / "training").is_dir() and not (run / "model.json").exists():
        warnings.warn(
            f'the training of "{run}" was stopped before its end, and its last checkpoint is used. '
            "The same `anyorder fit` resumes it.",
            AnyOrderWarning,
            stacklevel=2,
        )
    return model


def read_run(run: Path, domain: str) -> Any:
    """Returns the model of a run folder, which must be of the domain of that name."""
    return of_domain(opened(run), run, domain)


def of_domain(model: Any, run: Path, domain: str) -> Any:
    """Returns a model, or raises a `CheckpointError` if it is of another domain."""
    from anyorder.errors import CheckpointError

    found = domain_of(model)
    if found.name != domain:
        raise CheckpointError(
            f'"{run}" holds a model of {found.noun}; this asks for one of '
            f"{domain_named(domain).noun}. Try `anyorder {found.command}`."
        )
    return model


def read_saved(folder: str | Path, *, device: Any = None) -> Any:
    """Returns the `SavedModel` of a run folder, or of the last checkpoint of its training."""
    from anyorder.errors import check_device
    from anyorder.saving.checkpoint import load_saved

    names = {name: place for domain in domains() for name, place in domain.named_runs.items()}
    place = _place(names.get(str(folder), Path(folder)))
    return load_saved(place, device=check_device(device))


def as_model(saved: Any, folder: str | Path) -> Any:
    """Returns the estimator of what was read from a folder, by the domain in its notes."""
    from anyorder.errors import CheckpointError

    found = {domain.name: domain for domain in domains()}
    name = saved.notes.get("domain")
    if name not in found:
        known = ", ".join(domain.noun for domain in found.values())
        raise CheckpointError(
            f'"{folder}" holds no model of a known domain ({known}). Read it with `load_model`.'
        )
    return found[name].open(saved, folder)


def _place(folder: Path) -> Path:
    """Returns where the weights are: here, or in the last stage of the first ensemble member."""
    training = folder / "training"
    if (folder / "model.json").exists() or not training.is_dir():
        return folder
    first = training / "member-0"
    training = first if first.is_dir() else training
    stages = [stage for stage in sorted(training.glob("stage-*")) if any(stage.glob("step-*"))]
    return stages[-1] if stages else training
