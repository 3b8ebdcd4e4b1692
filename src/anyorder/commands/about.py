"""The verb `info`: what a saved model is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anyorder.checkpoint import Law
from anyorder.commands.runs import DOMAINS
from anyorder.commands.showing import show
from anyorder.configuration import describe
from anyorder.estimators.image import ImageModel
from anyorder.estimators.loading import as_model, read_saved
from anyorder.estimators.table import TableModel
from anyorder.estimators.text import TextModel
from anyorder.masks import MaskDistribution, UniformCardinality
from anyorder.query_laws import (
    ConditionalQueries,
    MarginalQueries,
    PartialQueries,
    QueryList,
    as_query_law,
)
from anyorder.query_mixtures import MixtureQueries
from anyorder.reproduce.record import print_json

MOST_LISTED = 10
"""So many questions of a list are spelt out."""


def describe_run(run: Path, *, json: bool) -> None:
    """Prints what a model is; see `anyorder info --help`."""
    saved = read_saved(run)
    model, network = as_model(saved, run), describe(saved.model.network)
    if json:
        found = {
            "domain": saved.notes["domain"],
            **_variables(model),
            "questions": None if saved.law is None else describe(saved.law),
            "network": network,
            "conditionals": describe(saved.model.conditionals),
            "parameters": saved.model.num_parameters,
            "anyorder": saved.version,
        }
        print_json(found)
        return
    facts = [("model of", DOMAINS[type(model)][0])]
    if isinstance(model, TableModel):
        show(["column", "taken for", "details"], model.table_.summary())
        names: Sequence[str] = model.table_.names
    elif isinstance(model, ImageModel):
        sizes = "x".join(map(str, saved.notes["shape"]))
        facts += [("shape", f"{sizes}, height x width x channels"), ("levels", f"{model.levels_}")]
        names = saved.model.schema.names
    else:
        facts += [("alphabet", repr(model.alphabet_)), ("length", f"{model.length} characters")]
        names = [str(place) for place in range(model.length)]
    facts += [("trained for", line) for line in question_words(saved.law, names)]
    facts += [
        ("network", _noun(network)),
        ("conditionals", _noun(describe(saved.model.conditionals))),
        ("parameters", f"{saved.model.num_parameters:,}"),
        ("saved by", f"anyorder {saved.version}"),
    ]
    show(["", str(run)], facts)


def _variables(model: TextModel | TableModel | ImageModel) -> dict[str, Any]:
    if isinstance(model, ImageModel):
        return {"shape": list(model.shape_ or ()), "levels": model.levels_}
    if isinstance(model, TextModel):
        return {"alphabet": model.alphabet_, "length": model.length, "hole": model.hole}
    return {"columns": [line._asdict() for line in model.table_.summary()]}


def question_words(law: Law | None, names: Sequence[str]) -> list[str]:
    """The questions of a law, one line for each of its parts.

    Example:
        >>> question_words(QueryList(2, [([0], [1], 1.0)]), ["age", "income"])
        ['QueryList: age -> income (100%)']
    """
    if law is None:
        return []
    found = as_query_law(law)
    if isinstance(found, MixtureQueries):
        parts = zip(found.weights.tolist(), found.laws, strict=True)
        return [
            f"{weight:.0%} {line}" for weight, part in parts for line in question_words(part, names)
        ]
    if isinstance(found, MarginalQueries):
        return [f"MarginalQueries: {_sets(found.masks)}, with nothing given"]
    if isinstance(found, ConditionalQueries):
        return [f"ConditionalQueries: all the rest, given {_sets(found.given)}"]
    if isinstance(found, PartialQueries):
        return [f"PartialQueries: some of the {len(names)} variables, given some, the rest unknown"]
    if isinstance(found, QueryList):
        return _listed(found, names)
    return [repr(found)]


def _listed(law: QueryList, names: Sequence[str]) -> list[str]:
    lines = []
    for given, query, weight in law.queries[:MOST_LISTED]:
        known, asked = (", ".join(names[place] for place in part) for part in (given, query))
        lines.append(f"QueryList: {known} -> {asked} ({weight:.0%})".replace(":  ->", ": ->"))
    left = len(law.queries) - MOST_LISTED
    return lines if left <= 0 else [*lines, f"QueryList: and {left} more"]


def _sets(masks: MaskDistribution) -> str:
    if isinstance(masks, UniformCardinality):
        total = masks.num_variables
        return f"{masks.low} to {masks.high} of the {total} variables, each number as often"
    return repr(masks)


def _noun(description: dict[str, Any]) -> str:
    """`PathTransformer: layers 3, width 96`."""
    options = [f"{key} {value}" for key, value in description.items() if key != "type"]
    return f"{description['type']}: {', '.join(options)}"
