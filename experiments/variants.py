"""Tables and plots of the comparisons of model variants.

    python -m experiments.variants        writes the plots of the documents

The records are those of `table_orders`, `text_orders`, `query_law_matrix` and `table_networks`, one
for each data set: `results/NAME.SET.json`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cyclopts import App
from matplotlib.figure import Figure

from anyorder.cli.app import run
from experiments.records import ROOT, difference, records, source, with_error

PICTURES = {
    "query_laws": "query-laws.png",
    "table_orders": "table-orders.png",
    "text_orders": "text-orders.png",
}

Cells = Mapping[tuple[str, str], Mapping[str, Any]]
"""Numbers by variant and kind of query."""


def variant_table(name: str) -> str:
    """Returns a table for each data set: the first variant, and the others' differences from it."""
    found = records(name)
    return "\n\n".join(part for record in found for part in _tables(record))


def _tables(record: Mapping[str, Any]) -> Iterable[str]:
    for dataset in dict.fromkeys(row["dataset"] for row in record["rows"]):
        rows, pairs = _cells(record, dataset)
        variants, kinds = (list(dict.fromkeys(key[i] for key in rows)) for i in (0, 1))
        heads = " | ".join(kind.removesuffix("_nats") for kind in kinds)
        lines = [f"| {dataset} | {heads} |", "|---" * (1 + len(kinds)) + "|"]
        for variant in variants:
            keys = [(variant, kind) for kind in kinds]
            cells = [difference(pairs[k]) if k in pairs else with_error(rows[k]) for k in keys]
            lines.append(f"| `{variant}` | {' | '.join(cells)} |")
        yield "\n".join(lines)
    yield source(record)


def _cells(record: Mapping[str, Any], dataset: str) -> tuple[Cells, Cells]:
    rows = {(r["model"], r["metric"]): r for r in record["rows"] if r["dataset"] == dataset}
    pairs = {(p["a"], p["metric"]): p for p in record["paired"] if p["dataset"] == dataset}
    return rows, pairs


class Panel(NamedTuple):
    """Axes and numbers of one data set."""

    axes: Any
    record: Mapping[str, Any]
    rows: Cells
    pairs: Cells

    def keys(self, cells: Cells) -> tuple[list[str], list[str]]:
        """Returns the variants and the kinds of queries, in their order in the record."""
        variants, kinds = (list(dict.fromkeys(key[i] for key in cells)) for i in (0, 1))
        return variants, kinds

    def label(self, variants: list[str], *, named: bool, **labels: str) -> None:
        """Labels the variants, if `named`, and sets the data set as the title."""
        self.axes.set_yticks(range(len(variants)), variants if named else [""] * len(variants))
        self.axes.set(title=self.record["rows"][0]["dataset"], **labels)


def _panels(name: str, width: float) -> tuple[Figure, list[Panel]]:
    """Returns a figure with a panel for each data set."""
    found = records(name)
    figure = Figure(figsize=(width * len(found), 4.2), layout="constrained")
    places = figure.subplots(1, len(found), squeeze=False)[0]
    return figure, [
        Panel(axes, record, *_cells(record, record["rows"][0]["dataset"]))
        for axes, record in zip(places, found, strict=True)
    ]


def draw_matrix(name: str) -> Figure:
    """Plots the loss of each training law on each kind of query, against the best one."""
    figure, panels = _panels(name, 4.6)
    for panel in panels:
        first, axes, rows = panel is panels[0], panel.axes, panel.rows
        variants, kinds = panel.keys(rows)
        best = {kind: max(rows[v, kind]["value"] for v in variants) for kind in kinds}
        lost = [[best[kind] - rows[v, kind]["value"] for kind in kinds] for v in variants]
        # Colours by a root, so that 0.1 and 10 nats are both visible.
        roots = [[value**0.25 for value in row] for row in lost]
        axes.imshow(roots, cmap="Blues", vmin=0)
        darkest = max(map(max, roots))
        for i, row in enumerate(lost):
            for j, value in enumerate(row):
                colour = "w" if roots[i][j] > 0.6 * darkest else "k"
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour)
        labels = [kind.removesuffix("_nats") for kind in kinds]
        slanted = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
        axes.set_xticks(range(len(kinds)), labels, **slanted)
        panel.label(variants, named=first, xlabel="queried", ylabel="trained on" if first else "")
    figure.suptitle("Nats per row behind the best of the column: 0 is best")
    return figure


def draw_differences(name: str) -> Figure:
    """Plots the differences from the first variant, with two standard errors to both sides."""
    figure, panels = _panels(name, 4.2)
    for panel in panels:
        axes = panel.axes
        variants, kinds = panel.keys(panel.pairs)
        for offset, kind in enumerate(kinds):
            chosen = [panel.pairs[variant, kind] for variant in variants]
            axes.errorbar(
                [pair["difference"] for pair in chosen],
                [i + 0.2 * (offset - (len(kinds) - 1) / 2) for i in range(len(chosen))],
                xerr=[2 * pair["se"] for pair in chosen],
                fmt="o",
                markersize=4,
                label=kind.removesuffix("_nats"),
            )
        axes.axvline(0, color="grey", linewidth=1)
        axes.invert_yaxis()
        than = panel.record["paired"][0]["b"]
        named = panel is panels[0] or variants != panels[0].keys(panels[0].pairs)[0]
        panel.label(variants, named=named, xlabel=f"nats per row more than `{than}`")
    shown = figure.axes[0].get_legend_handles_labels()
    figure.legend(*shown, loc="outside upper center", ncols=len(shown[1]), frameon=False)
    return figure


app = App(name="python -m experiments.variants", help=(__doc__ or "").splitlines()[0])


@app.default
def main() -> None:
    """Writes the plots."""
    for name, file in PICTURES.items():
        draw = draw_matrix if name == "query_laws" else draw_differences
        draw(name).savefig(ROOT / "docs" / file, dpi=130)


if __name__ == "__main__":
    run(app)
