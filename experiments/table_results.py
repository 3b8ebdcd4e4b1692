"""Tables of the documents from the records of `benchmarks.tables` and `experiments.calibration`."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks.tables import OURS, VARIANTS
from experiments.records import difference, record, records, source, with_error

SECONDS = "fit_seconds"
CONTEST = {
    "joint_nats": "joint, nats",
    "conditional_nats": "conditional, nats",
    "nrmse": "imputation, NRMSE",
    "error_rate": "imputation, error rate",
    "crps": "imputation, CRPS",
    SECONDS: "fitting, s",
}
"""Titles of the metrics; more nats are better, and less of all else."""

RIVALS = {
    "spflow": "SPFlow",
    "gaussian_mixture": "Gaussian mixture",
    "iterative_imputer": "IterativeImputer",
    "miceforest": "miceforest",
    "utrees": "UnmaskingTrees",
    "tabular_argn": "TabularARGN",
}


Row = Mapping[str, Any]


class Match(NamedTuple):
    """A model of ours and the best rival, on one data set by one metric."""

    ours: Row
    rival: Row
    difference: float
    se: float

    @property
    def gain(self) -> float:
        """Standard errors by which ours is better; negative if it is worse."""
        ahead = self.difference if self.ours["metric"].endswith("_nats") else -self.difference
        return ahead / self.se if self.se else 0.0


def matches(model: str = OURS) -> Iterator[Match]:
    """Yields every metric of a model of ours that some rival has too."""
    for kept in records("tables"):
        rows = {(r["dataset"], r["model"], r["metric"]): r for r in kept["rows"]}
        paired = _paired(kept, model)
        for dataset in dict.fromkeys(key[0] for key in rows):
            for metric in CONTEST:
                rivals = [
                    row
                    for (where, who, what), row in rows.items()
                    if (where, what) == (dataset, metric) and who not in (OURS, *VARIANTS)
                ]
                own = rows.get((dataset, model, metric))
                if own is None or own["se"] is None or not rivals:
                    continue
                best = max if metric.endswith("_nats") else min
                rival = best(rivals, key=lambda row: row["value"])
                pair = paired[dataset, rival["model"], metric]
                yield Match(own, rival, pair["difference"], pair["se"])


def _paired(kept: Mapping[str, Any], model: str = OURS) -> dict[tuple[str, str, str], Row]:
    """Returns differences of a model of ours from others, by data set, other and metric."""
    pairs = [pair for pair in kept["paired"] if pair["a"] == model]
    return {(pair["dataset"], pair["b"], pair["metric"]): pair for pair in pairs}


def contest_summary() -> str:
    """Returns the default model on each data set, with its difference from the best rival."""
    return _summary(OURS)


def contest_ten_seconds() -> str:
    """Returns the same table of a model that was trained for ten seconds."""
    return _summary("ten_seconds")


def contest_one_minute() -> str:
    """Returns the same table of a model that was trained for a minute."""
    return _summary("one_minute")


def _summary(model: str) -> str:
    found = {(match.ours["dataset"], match.ours["metric"]): match for match in matches(model)}
    metrics = [metric for metric in CONTEST if any(key[1] == metric for key in found)]
    lines = [f"| | {' | '.join(CONTEST[metric] for metric in [*metrics, SECONDS])} |"]
    lines.append("|---" * (2 + len(metrics)) + "|")
    for dataset in dict.fromkeys(key[0] for key in found):
        cells = [_matched(found.get((dataset, metric))) for metric in metrics]
        cells.append(_seconds(found[dataset, "joint_nats"]))
        lines.append(f"| {dataset} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _seconds(match: Match) -> str:
    """Returns the fitting seconds, and those of the rival with the best joint likelihood."""
    seconds = {
        row["model"]: row["value"]
        for kept in records("tables")
        for row in kept["rows"]
        if (row["dataset"], row["metric"]) == (match.ours["dataset"], SECONDS)
    }
    own, rival = match.ours["model"], match.rival["model"]
    return f"{seconds[own]:.0f} ({RIVALS[rival]}: {seconds[rival]:.0f})"


def _matched(match: Match | None) -> str:
    if match is None:
        return ""
    less = f"{match.difference:+.3f} ± {match.se:.3f}"
    return f"{match.ours['value']:.3f} ({less}, {RIVALS[match.rival['model']]})"


def any_order_cost() -> str:
    """Returns the cost of any-order training: differences from training on whole rows alone."""
    lines = ["| | joint, any query | joint, whole rows alone | difference | of conditionals |"]
    lines.append("|---" * 5 + "|")
    for kept in records("tables"):
        rows = {(r["dataset"], r["model"], r["metric"]): r for r in kept["rows"]}
        paired = _paired(kept)
        for dataset, model, metric in rows:
            if (model, metric) == ("joint_alone", "joint_nats"):
                values = [with_error(rows[dataset, who, metric]) for who in (OURS, model)]
                less = [
                    difference(paired[dataset, model, what])
                    for what in ("joint_nats", "conditional_nats")
                ]
                lines.append(f"| {dataset} | {' | '.join(values + less)} |")
    return "\n".join(lines)


def contest() -> str:
    """Returns a table for each data set: `TableModel`, and every rival with its difference."""
    return "\n\n".join(_contest(kept) for kept in records("tables"))


def _contest(kept: Mapping[str, Any]) -> str:
    rows = {(r["dataset"], r["model"], r["metric"]): r for r in kept["rows"]}
    paired = _paired(kept)
    parts = []
    for dataset in dict.fromkeys(key[0] for key in rows):
        metrics = [m for m in CONTEST if (dataset, OURS, m) in rows]
        lines = [f"| {dataset} | {' | '.join(CONTEST[m] for m in metrics)} |"]
        lines.append("|---" * (1 + len(metrics)) + "|")
        for model in dict.fromkeys(key[1] for key in rows if key[0] == dataset):
            cells = [
                _cell(rows.get((dataset, model, m)), paired.get((dataset, model, m)))
                for m in metrics
            ]
            lines.append(f"| `{model}` | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
        parts += _missing(kept["settings"].get("not_measured", {}).get(dataset, {}))
    return "\n\n".join([*parts, source(kept)])


def _missing(reasons: Mapping[str, str]) -> list[str]:
    """Returns a sentence with the reasons of missing scores."""
    words = [f"`{model}` {reason}" for model, reason in reasons.items()]
    return [f"Not all was measured: {'; '.join(words)}."] if words else []


def _cell(row: Mapping[str, Any] | None, pair: Mapping[str, Any] | None) -> str:
    """Formats the score of a rival, and in brackets the difference of ours."""
    if row is None:
        return ""
    if row["se"] is None:
        return f"{row['value']:,.0f}"
    return with_error(row) if pair is None else f"{row['value']:.3f} ({difference(pair)})"


def calibration() -> str:
    """Returns the calibration of the default model, by the share that is given."""
    kept = record("calibration")
    found = {(r["dataset"], r["metric"], r["model"]): r for r in kept["rows"]}
    titles = {
        "coverage_90": "coverage of 90% intervals of numbers",
        "off": "largest error of a probability of a number",
        "off_categories": "expected calibration error of categories",
    }
    given = list(dict.fromkeys(m for _, metric, m in found if metric == "coverage_90"))
    lines = [f"| | {' | '.join(f'{words} given' for words in given)} |"]
    lines.append("|---" * (1 + len(given)) + "|")
    for dataset in dict.fromkeys(key[0] for key in found):
        for metric, title in titles.items():
            keys = [(dataset, metric, words) for words in given]
            cells = [with_error(found[key]) if key in found else "" for key in keys]
            lines.append(f"| {dataset}: {title} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", source(kept)])
