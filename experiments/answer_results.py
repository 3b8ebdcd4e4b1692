"""Tables of the documents about right answers, and about the time until they are."""

from collections.abc import Mapping
from typing import Any

from experiments.records import record, records, source

Row = Mapping[str, Any]

SIZES = {"kl_0": "0", "kl_1": "1", "kl_3": "3", "kl_10": "10", "kl_all": "all others"}
MODELS = {
    "learnt_network": "learnt network",
    "TableModel": "`TableModel`",
    "prior_alone": "`network=None`",
}
"""Models that are shown, and their titles."""

COUNTED = ("largest_points", "rms_points", "rms_z")


def known_networks() -> str:
    """Returns divergences from known truths."""
    lines = [
        f"| truth | model | {' | '.join(f'{size} given' for size in SIZES.values())} "
        "| joint | CPU s |",
        "|---|---|" + "---|" * (len(SIZES) + 2),
    ]
    sources = []
    for kept in records("known_networks"):
        found = {(row["model"], row["metric"]): row for row in kept["rows"]}
        truth = found["truth", "joint_nats"]
        for model, title in MODELS.items():
            if (model, "kl_0") not in found:
                continue
            cells = [_small(found, model, size) for size in SIZES]
            joint = found[model, "joint_nats"]["value"] - truth["value"]
            seconds = found[model, "fit_seconds"]["value"]
            row = [truth["dataset"], title, *cells, f"{joint:+.3f}", f"{seconds:.1f}"]
            lines.append(f"| {' | '.join(row)} |")
        sources.append(source(kept))
    return "\n".join([*lines, "", *sources])


def counted_answers() -> str:
    """Returns errors of p(category | nothing or one category), beside shares of rows."""
    kept, found = _record("counted_answers")
    lines = [
        "| | largest error, points | root mean square, points | in standard errors | CPU s |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["dataset"] for row in kept["rows"]):
        cells = [_two(found[name, "TableModel", metric]) for metric in COUNTED]
        seconds = found[name, "TableModel", "processor_seconds"]["value"]
        lines.append(f"| {name} | {' | '.join(cells)} | {seconds:.0f} |")
    return "\n".join([*lines, "", source(kept)])


def fit_speed() -> str:
    """Returns seconds until a fit is as good as an earlier one of seven minutes."""
    kept, found = _record("fit_speed")
    lines = [
        "| | as good after, CPU s | by default, CPU s | joint, nats | conditional, nats |",
        "|---|---|---|---|---|",
    ]
    for name, reference in kept["settings"]["references"].items():
        reached = found.get((name, "reaches the reference", "seconds"))
        cells = ["not reached" if reached is None else f"{reached['value']:.0f}"]
        cells.append(f"{found[name, 'default', 'seconds']['value']:.0f}")
        for metric, nats in reference["nats"].items():
            own = found[name, "default", f"{metric}_nats"]["value"]
            cells.append(f"{own:.3f} ({own - nats:+.3f})")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", source(kept)])


def _record(name: str) -> tuple[dict[str, Any], dict[tuple[str, str, str], Row]]:
    """Reads a record; returns it, and its rows by set, model and metric."""
    kept = record(name)
    return kept, {(row["dataset"], row["model"], row["metric"]): row for row in kept["rows"]}


def _small(found: Mapping[tuple[str, str], Row], model: str, size: str) -> str:
    """A divergence, with the greater of its errors over questions and over seeds."""
    rows = [found[model, name] for name in (size, f"{size}/seeds") if (model, name) in found]
    if not rows:
        return ""  # a table of fewer columns
    error = max(row["se"] or 0.0 for row in rows)
    return f"{rows[0]['value']:.4f} ± {error:.4f}"


def _two(row: Row) -> str:
    error = "" if row["se"] is None else f" ± {row['se']:.2f}"
    return f"{row['value']:.2f}{error}"
