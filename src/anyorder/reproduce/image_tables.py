"""Tables 2 and 3 of the paper: images, in bits for each dimension."""

from collections.abc import Mapping, Sequence
from math import log

from rich.console import Console

from anyorder.data.image_sources import BUNDLED, READERS
from anyorder.errors import ConfigError, check_choice
from anyorder.reproduce.experiment import Outcome, joint_record, run_experiment
from anyorder.reproduce.image_catalogue import IMAGE_MODELS
from anyorder.reproduce.image_experiment import (
    SCALES,
    SOME_STEPS,
    WHOLE_WALK,
    ImageStudy,
    scale_of,
)
from anyorder.reproduce.options import ImagesOptions
from anyorder.reproduce.record import Paired
from anyorder.reproduce.showing import (
    TOO_SHORT,
    cell,
    difference_table,
    legend,
    report_console,
    report_table,
)

PAIRS = (
    ("mac", "ardm"),
    ("mac_strided", "ardm"),
    ("mac_strided", "mac"),
    ("path", "mac"),
    ("path_patches", "mac"),
    ("path_patches", "path"),
)
"""Differences that the tables state, a - b: negative is better for a."""

METRICS = ("joint", "marginal")

SMALL_SETS = ("digits", "binarized_mnist", "cifar10")

PAPER: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "cifar10": {"ardm": (2.86, 1.84), "mac_strided": (2.81, 1.81)},
    "imagenet32": {"ardm": (3.60, 2.10), "mac_strided": (3.58, 2.08)},
}
"""Joint and marginal bits that the paper prints, for whole images of 32x32 pixels."""


def table2(options: ImagesOptions) -> None:
    """Trains and measures models of ImageNet32."""
    _run("table2", "Table 2", ["imagenet32"], options)


def table3(options: ImagesOptions) -> None:
    """Trains and measures models of CIFAR-10, and at smaller scales of easier sets too."""
    _run("table3", "Table 3", _sets(options), options)


def _sets(options: ImagesOptions) -> Sequence[str]:
    for name in options.sets or ():
        check_choice("sets", name, [BUNDLED, *READERS])
    if options.sets:
        return list(dict.fromkeys(options.sets))
    if options.scale == "paper":
        return ["cifar10"]
    return [BUNDLED] if options.data is None else SMALL_SETS


def _run(name: str, title: str, sets: Sequence[str], options: ImagesOptions) -> None:
    options.check(SCALES, IMAGE_MODELS)
    if options.data is None and list(sets) != [BUNDLED]:
        raise ConfigError(
            f"The images of {', '.join(s for s in sets if s != BUNDLED)} are read from `data`: "
            "give the folder that holds them; what is missing there is then named."
        )
    studies = {one: ImageStudy(one, scale_of(options.scale, one), options.data) for one in sets}
    for study in studies.values():
        study.data_name  # noqa: B018, a file that cannot be read stops us before the work
    names = options.models or list(IMAGE_MODELS)
    outcomes = {
        one: run_experiment(name, names, study, options.out / options.scale / one, options)
        for one, study in studies.items()
    }
    paired = [pair for outcome in outcomes.values() for pair in _paired(outcome)]
    kept = joint_record(options.command(name), outcomes, paired)
    if not kept.publish(options.record, json=options.json):
        return
    console = report_console()
    console.print(f"{title} at scale {options.scale}: bits a dimension; less is better")
    for one, outcome in outcomes.items():
        images = studies[one].images
        printed = PAPER.get(one, {}) if images.is_public_test else {}
        _show(console, outcome, printed, studies[one])
    console.print(legend(IMAGE_MODELS, names))
    if options.scale == "tiny":
        console.print(f"\n{TOO_SHORT}")


def _paired(outcome: Outcome) -> list[Paired]:
    found = outcome.estimates
    pairs = [(a, b) for a, b in PAIRS if a in found and b in found]
    return [outcome.difference(a, b, metric) for a, b in pairs for metric in METRICS]


def _show(
    console: Console,
    outcome: Outcome,
    printed: Mapping[str, tuple[float, float]],
    study: ImageStudy,
) -> None:
    n = study.num_variables
    console.print(f"\n{outcome.data}, {n} dimensions")
    # Published numbers of images in black and white are in nats an image.
    nats = ["joint, nats\nan image"] if study.images.levels == 2 else []
    paper = ["paper: joint,\nmarginal"] if printed else []
    table = report_table("model", *METRICS, *nats, "steps", *paper)
    for name, found in outcome.estimates.items():
        cells = [cell(found[metric].value, found[metric].se) for metric in METRICS]
        if nats:
            joint = found["joint"]
            cells.append(f"{-joint.value * n * log(2):.2f} ± {joint.se * n * log(2):.2f}")
        steps = outcome.settings["steps"][name] or outcome.settings["settings"]["steps"]
        cells.append(f"{steps:,}")
        cells += [", ".join(f"{v:.2f}" for v in printed.get(name, ()))] if printed else []
        table.add_row(name, *cells)
    console.print(table)
    if differences := _paired(outcome):
        console.print(difference_table(differences, METRICS, "bits"))
    if n > WHOLE_WALK:
        console.print(
            f"Walks of masked networks are estimated from {SOME_STEPS} stratified steps each.\n"
        )
