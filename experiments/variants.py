"""Records of variants of `TableModel` as tables, and as pictures.

    python -m experiments.variants        draws the pictures of the documents

A record is what `table_orders`, `query_law_matrix` or `table_networks` wrote, one for each set:
`results/NAME.SET.json`.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cyclopts import App
from matplotlib.figure import Figure

from anyorder.cli import run

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "experiments" / "results"
PICTURES = {"query_laws": "query-laws.png", "table_orders": "table-orders.png"}

Cells = Mapping[tuple[str, str], Mapping[str, Any]]
"""By variant and kind of question."""


def records(name: str) -> list[dict[str, Any]]:
    """The records of an experiment, one for each set."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{name}.*.json"))]


def variant_table(name: str) -> str:
    """For each set the first variant as it is, and what the others differ from it."""
    found = records(name)
    return "\n\n".join(part for record in found for part in _tables(record))


def _tables(record: Mapping[str, Any]) -> Iterable[str]:
    for dataset in dict.fromkeys(row["dataset"] for row in record["rows"]):
        rows, pairs = _cells(record, dataset)
        variants, kinds = (list(dict.fromkeys(key[i] for key in rows)) for i in (0, 1))
        heads = " | ".join(kind.removesuffix("_nats") for kind in kinds)
        lines = [f"| {dataset} | {heads} |", "|---" * (1 + len(kinds)) + "|"]
        for variant in variants:
            cells = [_words(rows[variant, kind], pairs.get((variant, kind))) for kind in kinds]
            lines.append(f"| `{variant}` | {' | '.join(cells)} |")
        yield "\n".join(lines)
    yield f"From `{record['command']}` at commit `{record['commit'][:9]}`."


def _words(row: Mapping[str, Any], pair: Mapping[str, Any] | None) -> str:
    if pair is None:
        return f"{row['value']:.3f} ± {row['se']:.3f}"
    return f"{pair['difference']:+.3f} ± {pair['se']:.3f}"


def _cells(record: Mapping[str, Any], dataset: str) -> tuple[Cells, Cells]:
    rows = {(r["model"], r["metric"]): r for r in record["rows"] if r["dataset"] == dataset}
    pairs = {(p["a"], p["metric"]): p for p in record["paired"] if p["dataset"] == dataset}
    return rows, pairs


def draw_matrix(name: str) -> Figure:
    """What a model loses on each kind of question to the one that was trained best for it."""
    found = records(name)
    figure = Figure(figsize=(4.6 * len(found), 4.2), layout="constrained")
    for place, (axes, record) in enumerate(
        zip(figure.subplots(1, len(found), squeeze=False)[0], found, strict=True)
    ):
        dataset = record["rows"][0]["dataset"]
        rows, _ = _cells(record, dataset)
        variants, kinds = (list(dict.fromkeys(key[i] for key in rows)) for i in (0, 1))
        best = {kind: max(rows[v, kind]["value"] for v in variants) for kind in kinds}
        lost = [[best[kind] - rows[v, kind]["value"] for kind in kinds] for v in variants]
        # Colours by a root: a tenth of a nat and ten nats are both to be seen.
        axes.imshow([[value**0.25 for value in row] for row in lost], cmap="Blues", vmin=0)
        for i, row in enumerate(lost):
            for j, value in enumerate(row):
                dark = value**0.25 > 0.6 * max(v**0.25 for part in lost for v in part)
                axes.text(
                    j, i, f"{value:.2f}", ha="center", va="center", color="w" if dark else "k"
                )
        axes.set_xticks(range(len(kinds)), [k.removesuffix("_nats") for k in kinds], rotation=40)
        axes.set_yticks(range(len(variants)), variants if place == 0 else [""] * len(variants))
        axes.set(title=dataset, xlabel="asked", ylabel="trained for" if place == 0 else "")
    figure.suptitle("Nats a row behind the best of the column: 0 is best")
    return figure


def draw_differences(name: str) -> Figure:
    """What each variant differs from the first, with two standard errors to both sides."""
    found = records(name)
    figure = Figure(figsize=(4.2 * len(found), 4.2), layout="constrained")
    for place, (axes, record) in enumerate(
        zip(figure.subplots(1, len(found), squeeze=False)[0], found, strict=True)
    ):
        dataset = record["rows"][0]["dataset"]
        _, pairs = _cells(record, dataset)
        variants, kinds = (list(dict.fromkeys(key[i] for key in pairs)) for i in (0, 1))
        for offset, kind in enumerate(kinds):
            chosen = [pairs[variant, kind] for variant in variants]
            axes.errorbar(
                [pair["difference"] for pair in chosen],
                [i + 0.2 * (offset - (len(kinds) - 1) / 2) for i in range(len(chosen))],
                xerr=[2 * pair["se"] for pair in chosen],
                fmt="o",
                markersize=4,
                label=kind.removesuffix("_nats"),
            )
        axes.axvline(0, color="grey", linewidth=1)
        axes.set_yticks(range(len(variants)), variants if place == 0 else [""] * len(variants))
        axes.invert_yaxis()
        first = record["paired"][0]["b"]
        axes.set(title=dataset, xlabel=f"nats a row more than `{first}`")
    figure.axes[0].legend()
    return figure


app = App(name="python -m experiments.variants", help=(__doc__ or "").splitlines()[0])


@app.default
def main() -> None:
    """Draws the pictures."""
    drawers = {"query_laws": draw_matrix, "table_orders": draw_differences}
    for name, file in PICTURES.items():
        drawers[name](name).savefig(ROOT / "docs" / file, dpi=130)


if __name__ == "__main__":
    run(app)
