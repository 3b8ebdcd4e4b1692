"""What `benchmarks.tables` and `experiments.calibration` wrote down, as tables of the documents."""

from collections.abc import Mapping
from typing import Any

from experiments.records import difference, record, records, source, with_error

OURS = "TableModel"
CONTEST = {
    "joint_nats": "joint, nats",
    "conditional_nats": "conditional, nats",
    "nrmse": "gaps, NRMSE",
    "error_rate": "gaps, error rate",
    "crps": "gaps, CRPS",
    "fit_seconds": "fitting, s",
}
"""The columns; more nats are better, and less of all else."""


def contest() -> str:
    """For each set `TableModel` as it is, and what every rival differs from it."""
    return "\n\n".join(_contest(kept) for kept in records("tables"))


def _contest(kept: Mapping[str, Any]) -> str:
    rows = {(r["dataset"], r["model"], r["metric"]): r for r in kept["rows"]}
    paired = {(p["dataset"], p["b"], p["metric"]): p for p in kept["paired"]}
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
    """Why rivals lack some scores, or all."""
    words = [f"`{model}` {reason}" for model, reason in reasons.items()]
    return [f"Not all was measured: {'; '.join(words)}."] if words else []


def _cell(row: Mapping[str, Any] | None, pair: Mapping[str, Any] | None) -> str:
    """What a rival scored, and in brackets how much more or less ours did."""
    if row is None:
        return ""
    if row["se"] is None:
        return f"{row['value']:,.0f}"
    return with_error(row) if pair is None else f"{row['value']:.3f} ({difference(pair)})"


def calibration() -> str:
    """How much of the values lies in intervals of 90%, by how much is given."""
    kept = record("calibration")
    found = {(r["dataset"], r["metric"], r["model"]): r for r in kept["rows"]}
    titles = {
        "coverage_90": "numbers in their 90% intervals",
        "off": "the most that a probability of a number is off",
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
