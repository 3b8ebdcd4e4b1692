"""Plot of the lattice of four variables, with the edges of marginal queries.

python -m experiments.lattice_picture        writes docs/lattice.png
"""

from itertools import combinations
from pathlib import Path

import torch
from cyclopts import App
from matplotlib.figure import Figure

from anyorder.cli.app import run
from anyorder.lattice.protocols import RemoveGreatest, lexicographic

ROOT = Path(__file__).parent.parent
VARIABLES = 4
QUERY, EVIDENCE = (1, 3), (0,)
"""p(x2, x4 | x1), numbered from 0."""

USED, OTHER, WALKED = "#2458a6", "#cfd6df", "#e0812b"

Node = tuple[int, ...]


def places() -> dict[Node, tuple[float, float]]:
    """Returns the position of each set: upwards by size, sets of one size side by side."""
    found = {}
    for size in range(VARIABLES + 1):
        sets = list(combinations(range(VARIABLES), size))
        for place, members in enumerate(sets):
            found[members] = (1.6 * (place - (len(sets) - 1) / 2), float(size))
    return found


def used(members: Node) -> Node:
    """Returns the set before a set on its canonical path."""
    inside = torch.zeros(1, VARIABLES, dtype=torch.bool)
    inside[0, list(members)] = True
    taken = int(RemoveGreatest(lexicographic(VARIABLES)).removal(inside).argmax())
    return tuple(i for i in members if i != taken)


def walk() -> list[tuple[Node, Node]]:
    """Returns the edges of the query."""
    steps: list[tuple[Node, Node]] = []
    known: Node = EVIDENCE
    for variable in QUERY:
        after = tuple(sorted((*known, variable)))
        steps.append((known, after))
        known = after
    return steps


def draw() -> Figure:
    """Plots the lattice."""
    where, path = places(), walk()
    figure = Figure(figsize=(9, 4.6))
    axes = figure.add_axes((0, 0, 1, 1))
    for members, (x, y) in where.items():
        for taken in members:
            below = tuple(i for i in members if i != taken)
            colour, width = (USED, 1.8) if used(members) == below else (OTHER, 0.9)
            if (below, members) in path:
                colour, width = WALKED, 3.5
            axes.plot([where[below][0], x], [where[below][1], y], color=colour, lw=width, zorder=1)
    for members, (x, y) in where.items():
        name = "{" + ", ".join(f"x{i + 1}" for i in members) + "}" if members else "∅"
        box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": "#5b6675"}
        axes.text(x, y, name, ha="center", va="center", fontsize=9, bbox=box, zorder=2)
    for colour, words in (
        (USED, "used by marginal queries"),
        (OTHER, "never used by them"),
        (WALKED, "p(x2, x4 | x1)"),
    ):
        axes.plot([], [], color=colour, lw=2.5, label=words)
    axes.legend(loc="upper left", frameon=False)
    axes.set_axis_off()
    return figure


app = App(name="python -m experiments.lattice_picture", help=(__doc__ or "").splitlines()[0])


@app.default
def main() -> None:
    """Writes the plot."""
    draw().savefig(ROOT / "docs" / "lattice.png", dpi=130)


if __name__ == "__main__":
    run(app)
