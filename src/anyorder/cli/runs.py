"""Work of the shared commands on run folders: fit, open, describe, serve and check a model.

The domain of a file or of a saved model does what is special to it.
"""

import json as jsons
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console

from anyorder.cli.console import note, print_json, printable, show
from anyorder.cli.options import FitOptions
from anyorder.diagnostics.calibration import LEVELS
from anyorder.diagnostics.check import SEEN, Check
from anyorder.diagnostics.consistency import percent
from anyorder.domains import (
    Domain,
    Grid,
    as_model,
    domain_named,
    domain_of,
    domains,
    opened,
    read_saved,
)
from anyorder.errors import ConfigError, check_count, check_seed
from anyorder.lattice.query_laws import describe_queries
from anyorder.saving.checkpoint import RunFolder, describe, replace_text

ARCHIVES = (".zip", ".tar", ".tgz", ".tbz2", ".txz", ".7z", ".rar", ".gz", ".bz2", ".xz", ".zst")
"""Endings of files that have to be unpacked, unless what is in them stands before: .csv.gz."""

REPORTS = (".html", ".htm")

RESUMES = "The same command resumes from the last checkpoint, if there is one."
SAME = re.compile("same (call or )?command")

HEADS = 4
"""Default number of attention heads; see `fit --help`."""


def fit_file(file: str, *, domain: str | None, shared: FitOptions, own: Mapping[str, Any]) -> None:
    """Fits a file as a domain, which is found by the file's name unless it is named.

    Args:
        file: File, folder or name, as typed.
        domain: Name of the domain, if it was given.
        shared: Options for all domains.
        own: Options of single domains, by their names; a domain without any may be left out.
    """
    found = domain_named(domain, "--as") if domain else domain_of_file(file)
    for other in domains():
        if other.name in own and other.name != found.name:
            refuse_options(
                asdict(own[other.name]),
                f'is for {other.plural}, and "{file}" is read as {found.noun}; '
                f"`--as {other.name}` would say otherwise.",
            )
    _check_shared(shared, width=found.width)
    try:
        found.fit(file, shared, own.get(found.name, found.fit_options()))
    except KeyboardInterrupt as stopped:  # before the training or after it, where none tells more
        words = str(stopped) or RESUMES
        if shared.overwrite:  # which would remove what was saved just now
            words = SAME.sub("same command without `--overwrite`", words)
        raise KeyboardInterrupt(words) from None


def domain_of_file(file: str) -> Domain:
    """Returns the domain of a file by its name; refuses a file that looks like another's."""
    for domain in domains():
        if domain.recognises(file):
            return domain
    path = Path(file)
    if not path.exists():
        sources = [words for domain in domains() for words in domain.sources]
        raise ConfigError(f'There is no file "{file}". Give {", ".join(sources)}.')
    if path.suffix.lower() in ARCHIVES:
        raise ConfigError(
            f'"{file}" is an archive: unpack it, and give the table, the text or the folder of '
            "pictures that is in it. One packed CSV file can be read if it is called .csv.gz or "
            ".csv.zip."
        )
    for domain in domains():
        domain.refuse(file)
    return next(domain for domain in domains() if domain.reads_any_file)


def refuse_options(options: Mapping[str, Any], why: str) -> None:
    """Refuses options that were given and do not fit, with the reason."""
    for name, value in options.items():
        if value is not None:
            raise ConfigError(f"`--{name.replace('_', '-')}` {why}")


def _check_shared(shared: FitOptions, *, width: int) -> None:
    """Refuses impossible options before a file is read and columns are shown."""
    taken = next((place for place in (shared.out, *shared.out.parents) if place.is_file()), None)
    if taken is not None:
        raise ConfigError(
            f'`--out` must be a folder, which is made for the model; "{taken}" is a file. Name '
            f'another, such as "runs/{taken.stem}".'
        )
    minutes = shared.minutes
    if minutes is not None and not 0 < minutes < math.inf:
        raise ConfigError(f"`--minutes` must be above 0 and finite; got {minutes:g}.")
    for name, value in {"steps": shared.steps, **shared.sizes()}.items():
        if value is not None:
            check_count(name, value)
    wide, heads = shared.width or width, shared.heads or HEADS
    if wide % heads:
        raise ConfigError(
            f"`--heads` must divide the width, which is {wide}; got {heads}. Change one of them "
            "(`--width`)."
        )


def finished_step(folder: Path, *, stages: int | None = None) -> int | None:
    """Returns the steps of a training that has ended; None if it goes on, or is not there."""
    members = list(folder.glob("member-*")) or [folder]
    steps = [_ended(member, len(members), stages) for member in members]
    return None if None in steps else sum(filter(None, steps))


def _ended(folder: Path, members: int, stages: int | None) -> int | None:
    """Returns the steps of a training that has ended, one of so many ensemble members."""
    last = folder / f"stage-{stages}"
    place = last if last.is_dir() else folder
    pairs = RunFolder(place).load("model", "training") if place.is_dir() else None
    if not pairs or pairs[0].document["notes"].get("members", 1) != members:
        return None
    done = pairs[1].document["fit"]
    return None if done["ending"] is None else int(done["step"])


def check_report(out: Path | None) -> None:
    """Refuses, before the work, a report that cannot be written."""
    if out is None:
        return
    if out.suffix.lower() not in REPORTS:
        raise ConfigError(f'`--report` must end in .html; got "{out}".')
    if out.is_dir():
        raise ConfigError(f'`--report` must be a file; "{out}" is a folder.')
    if find_spec("matplotlib") is None:
        raise ConfigError('A report needs matplotlib: pip install "anyorder[plot]".')


def report_options(run: Path, *, seed: int) -> dict[str, Any]:
    """Returns the arguments that the reports of all domains share."""
    training = run / "training" if (run / "training").is_dir() else None
    name = run.resolve().name  # of "." too
    return {"name": name, "training": training, "seed": seed, "progress": True}


def write_report(html: str, out: Path) -> None:
    """Writes the page of `evaluate --report`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_text(out, html)
    note(f"Written: {out}, a page for any browser.")


def describe_run(run: Path, *, json: bool) -> None:
    """Prints the facts about a model; see `anyorder info --help`."""
    saved = read_saved(run)
    model, network = as_model(saved, run), describe(saved.model.network)
    domain = domain_of(model)
    found = domain.describe(model)
    if json:
        print_json(
            {
                "domain": domain.name,
                **found.document,
                "questions": None if saved.law is None else describe(saved.law),
                "network": network,
                "conditionals": describe(saved.model.conditionals),
                "parameters": saved.model.num_parameters,
                "anyorder": saved.version,
            }
        )
        return
    if found.columns is not None:
        show(*found.columns)
    facts = [
        ("model of", domain.noun),
        *found.facts,
        *(("trained for", line) for line in describe_queries(saved.law, found.names)),
        ("network", _noun(network)),
        ("conditionals", _noun(describe(saved.model.conditionals))),
        ("parameters", f"{saved.model.num_parameters:,}"),
        ("saved by", f"anyorder {saved.version}"),
    ]
    show(["", str(run)], facts)


def _noun(description: dict[str, Any]) -> str:
    """Returns `PathTransformer: layers 3, width 96`; for an ensemble, its size and one member."""
    members = description.get("members")
    if members:
        return f"{len(members)} of {_noun(members[0])}"
    if "network" in description:
        return f"{_noun(description['network'])}; with a prior"
    options = [f"{key} {value}" for key, value in description.items() if key != "type"]
    return f"{description['type']}: {', '.join(options)}"


def serve_model(run: Path, *, host: str, port: int, token: str | None, show: bool) -> None:
    """Serves a model; see `anyorder serve --help`."""
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise ConfigError('Serving needs FastAPI: pip install "anyorder[serve]".')
    from anyorder.serve.server import serve_run

    serve_run(run, host=host, port=port, token=token or None, tell=note, show=show)


MOST_COLUMNS = 10
"""Greatest number of columns that are shown, the worst first."""

GAPS = {
    "path": "along another order",
    "marginalisation": "with a variable summed out",
    "ratio": "as a ratio, not directly",
    "encoding": "with evidence along the path",
}
"""Second way to the same likelihood, by consistency gap."""

GIVEN, OFF = "given of a row", ("off by up to", "p-value")
"""Headings."""


def check_file(
    run: Path,
    file: str,
    *,
    rows: int | None,
    target: str | None,
    out: Path | None,
    seed: int,
    json: bool,
) -> None:
    """Checks a model on a file of its own domain; see `anyorder check --help`."""
    check_seed(seed)
    if rows is not None:
        check_count("rows", rows)
    if out is not None and out.exists() and not out.is_dir():
        raise ConfigError(f'`--out` must be a folder; "{out}" is a file.')
    model = opened(run)
    domain = domain_of(model)
    found, size, seen, more, grids = domain.check(model, file, rows=rows, target=target, seed=seed)
    document = {**found.to_json(), **more}
    if out is not None:
        _write(found, document, out)
    if json:
        print_json({"data": Path(file).name, "trained_on": seen, **document})
    else:
        _show(_grids(found, f"{Path(file).name}, {size}"))
        console = Console(soft_wrap=True, highlight=False, markup=False)
        for sentence in found.sentences():
            console.print(f"- {printable(sentence)}")
        _show(grids)
        if seen:
            note(SEEN)


def _write(found: Check, document: Mapping[str, Any], out: Path) -> None:
    """Writes the numbers, and the plots if matplotlib is installed."""
    out.mkdir(parents=True, exist_ok=True)
    text = jsons.dumps(document, indent=1, ensure_ascii=False)
    (out / "check.json").write_text(text + "\n", encoding="utf-8")
    names = ["check.json"]
    if find_spec("matplotlib") is None:
        note('No plots, which need matplotlib: pip install "anyorder[plot]".')
    else:
        names += [f"{name}.png" for name in found.plot(out)]
    note(f"Written: {', '.join(str(out / name) for name in names)}")


def _grids(found: Check, name: str) -> Iterator[Grid]:
    """Yields the tables of a check: gaps, numbers, categories, and columns that are off."""
    gaps = [(words, gap) for key, words in GAPS.items() if (gap := getattr(found, key)) is not None]
    yield Grid(
        f"{name}: consistency, the same likelihood computed in two ways",
        ["second way", "difference, nats", "90% quantile", "rows"],
        [
            [words, str(gap.size), f"{gap.quantile_90:.4f}", f"{len(gap.rows):,}"]
            for words, gap in gaps
        ],
    )
    yield Grid(
        "Numbers: coverage, the share of values inside their intervals",
        [GIVEN, "cells", *(f"{level:.0%} intervals" for level in LEVELS), *OFF],
        [
            [
                *(given, f"{len(part.pit):,}"),
                *(percent(part.coverage(level)) for level in LEVELS),
                *(f"{part.distance:.1%}", f"{part.p_value:.2g}"),
            ]
            for given, part in found.numbers.items()
        ],
    )
    yield Grid(
        "Categories: confidence and accuracy of the most probable level",
        [GIVEN, "cells", "confidence", "accuracy", "calibration error", "by chance", "p-value"],
        [
            [
                *(given, f"{len(part.hit):,}"),
                *(f"{part.accuracy.value + part.overconfidence.value:.1%}", percent(part.accuracy)),
                *(f"{part.expected_error:.1%}", f"{part.expected_by_chance:.1%}"),
                f"{part.hit_p_value:.2g}",
            ]
            for given, part in found.categories.items()
        ],
    )
    yield Grid(
        "Columns whose probabilities are off beyond chance, the worst first",
        ["column", "cells", *OFF],
        [
            [column.name, f"{column.n:,}", f"{column.distance:.1%}", f"{column.p_value:.2g}"]
            for column in found.columns_off()[:MOST_COLUMNS]
        ],
    )


def _show(grids: Iterable[Grid]) -> None:
    """Prints tables, but for empty ones."""
    for title, headings, cells in grids:
        if cells:
            show(headings, cells, title=title, numbers=headings[1:])
