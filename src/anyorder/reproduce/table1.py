"""Table 1 of the paper: text, in bits for each character; and what one pass makes of it."""

from pathlib import Path

from anyorder.errors import check_choice, check_count
from anyorder.evaluation import Estimate
from anyorder.reproduce.jobs import run_jobs
from anyorder.reproduce.record import Paired, Record, Row, check_record, command, print_json
from anyorder.reproduce.showing import TOO_SHORT, legend, report_console, report_table
from anyorder.reproduce.text_models import (
    SCALES,
    TABLE1,
    Entry,
    TextJob,
    evaluate,
    identity,
    read_text,
    with_minutes,
)

PAPER = {"ardm": (1.48, 1.12), "mac_strided": (1.40, 1.09), "path_rnd": (1.64, None)}
"""Joint and marginal bits that the paper prints (3000 epochs; OA-Transformer for random orders).

Its command for text8 has a strided order."""

PAIRS = (
    ("mac", "ardm"),
    ("path", "mac"),
    ("path_mix", "mac"),
    ("path_mix", "mac_strided"),
    ("path_mix", "ardm"),
    ("path", "left_to_right"),
    ("path_one_stream", "left_to_right"),
    ("path_mix_one_stream", "path_mix"),
)
"""Differences that the table states, a - b: negative is better for a."""

ASKS_NO_CONDITIONALS = ("path", "path_rnd", "path_one_stream", "left_to_right")

NO_CONDITIONALS = "* not trained on conditional questions: its encoder of evidence is as it began."

METRICS = ("joint", "marginal", "conditional")


def table1_entry(name: str) -> Entry:
    """A model of the table."""
    return TABLE1[name]


def table1(
    *,
    scale: str = "tiny",
    data: Path | None = None,
    out: Path = Path("runs/table1"),
    models: list[str] | None = None,
    minutes: float | None = None,
    at_once: int = 1,
    seed: int = 0,
    json: bool = False,
    record: Path | None = None,
) -> None:
    """Trains and evaluates the models of Table 1, and prints them beside the paper's numbers.

    Args:
        scale: "tiny" (seconds), "small" (the same minutes for each model) or "paper" (a GPU).
        data: text8, or the folder that holds it; without it, the text that ships with Python.
        out: Where runs go; the same command goes on with them.
        models: Which models; all by default.
        minutes: Of training for each model, in place of the scale's budget.
        at_once: How many models are trained at a time, one thread each.
        seed: Of the questions that are evaluated.
        json: Whether to print one JSON object in place of the table.
        record: A file to which the numbers are written with the command and the commit.
    """
    check_choice("scale", scale, SCALES)
    check_count("at_once", at_once)
    check_record(record)
    names = models or list(TABLE1)
    for name in names:
        check_choice("models", name, TABLE1)
    size, text = with_minutes(SCALES[scale], minutes), read_text(data)
    about = identity(size, text, seed)
    job = TextJob(table1_entry, evaluate, size, data, seed)
    results, source = run_jobs(job, names, out / scale, identity=about, at_once=at_once)
    options: dict[str, object] = {
        "scale": scale,
        "data": data and "text8",
        "minutes": minutes,
        "seed": seed,
    }
    kept = Record(
        command=command("table1", options, models=models),
        settings=about,
        rows=_rows(text.name, results),
        paired=_paired(text.name, results),
        source=source,
    )
    if record is not None:
        kept.save(record)
    if json:
        print_json(kept.to_json())
    else:
        _show(text.name, scale, results)


def _rows(source: str, results: dict[str, dict[str, Estimate]]) -> list[Row]:
    return [
        Row(source, name, f"{metric}_bits", found.value, found.se, len(found.rows))
        for name, estimates in results.items()
        for metric, found in estimates.items()
    ]


def _paired(source: str, results: dict[str, dict[str, Estimate]]) -> list[Paired]:
    paired = []
    for a, b in PAIRS:
        if a in results and b in results:
            for metric in METRICS:
                difference = results[a][metric].minus(results[b][metric])
                paired.append(
                    Paired(source, a, b, f"{metric}_bits", difference.value, difference.se)
                )
    return paired


def _show(source: str, scale: str, results: dict[str, dict[str, Estimate]]) -> None:
    console = report_console()
    console.print(f"Table 1 at scale {scale}: {source}, bits; less is better")
    table = report_table("model", *METRICS, "paper: joint,\nmarginal")
    for name, estimates in results.items():
        paper = ", ".join(f"{v:.2f}" for v in PAPER.get(name, ()) if v is not None)
        cells = [_cell(estimates[metric].value, estimates[metric].se) for metric in METRICS]
        cells[-1] += "*" if name in ASKS_NO_CONDITIONALS else " "
        table.add_row(name, *cells, paper)
        for metric in (m for m in estimates if m not in METRICS):
            found = estimates[metric]
            table.add_row(f"  {metric}", _cell(found.value, found.se), "", "", "")
    console.print(table)
    if any(name in ASKS_NO_CONDITIONALS for name in results):
        console.print(f"{NO_CONDITIONALS}\n")
    differences = {(p.a, p.b, p.metric): p for p in _paired(source, results)}
    if differences:
        table = report_table("a - b: negative is better for a", *METRICS)
        for a, b in dict.fromkeys((a, b) for a, b, _ in differences):
            pairs = [differences[a, b, f"{metric}_bits"] for metric in METRICS]
            table.add_row(f"{a} - {b}", *(_cell(p.difference, p.se, sign="+") for p in pairs))
        console.print(table)
    console.print(legend(TABLE1, results))
    if scale == "tiny":
        console.print(f"\n{TOO_SHORT}")


def _cell(value: float, se: float, *, sign: str = "") -> str:
    return f"{value:{sign}.3f} ± {se:.3f}"
