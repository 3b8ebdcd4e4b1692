"""Result tables of the documents, written from `experiments/results`.

    python -m experiments.tables            writes them
    python -m experiments.tables --check    checks that they are up to date

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``; NAME is a function below.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from cyclopts import App, Parameter

from anyorder.cli.app import run
from anyorder.errors import ConfigError
from anyorder.reproduce.robot_models import COVERAGE, LIKELIHOODS, NATS, REWARD, ROWS
from anyorder.reproduce.table1_figure3 import ASKS_NO_CONDITIONALS, FIGURE3, METRICS, TABLE1
from anyorder.reproduce.table6 import BY_SEED
from anyorder.reproduce.table6 import PAPER as PAPER_REWARD
from anyorder.reproduce.table7 import PAPER_ENTROPY
from anyorder.reproduce.tables4_5 import MILLISECONDS
from experiments.answer_results import counted_answers, fit_speed, known_networks
from experiments.paper_results import MNIST_NATS, paper
from experiments.records import ROOT, record, source, with_error
from experiments.table_results import (
    any_order_cost,
    calibration,
    contest,
    contest_one_minute,
    contest_summary,
    contest_ten_seconds,
)
from experiments.variants import variant_table

DOCUMENTS = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if "<!-- table:" in path.read_text()
]
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table7() -> str:
    """Returns the entropies of Table 7: exact, simulated, published."""
    kept = record("table7.paper")
    titles = {
        "M": "M, the test law",
        "rnd_path": "w-RND, path",
        "mac_path": "w-MAC, path",
        "mac_path_cr": "w-MAC, path + CR",
        "rnd_edge": "w-RND, edge",
        "mac_edge": "w-MAC, edge",
        "mac_edge_cr": "w-MAC, edge + CR",
        "cond_path_cr": "conditional queries, path + CR",
    }
    found = {(row["model"], row["metric"]): row for row in kept["rows"]}
    lines = ["| law over masks, N = 12 | exact | simulated | paper |", "|---|---|---|---|"]
    for name, title in titles.items():
        sampled = found[name, "entropy_simulated_nats"]
        paper = f"{PAPER_ENTROPY[name]:.2f}" if name in PAPER_ENTROPY else ""
        paper += "*" if name == "cond_path_cr" else ""
        lines.append(
            f"| {title} | {found[name, 'entropy_exact_nats']['value']:.3f} "
            f"| {sampled['value']:.3f} ± {sampled['se']:.3f} | {paper} |"
        )
    return "\n".join(
        [
            *lines,
            "",
            f"Entropies in nats; * in the paper's data file, not in print. {source(kept)}",
        ]
    )


def table1() -> str:
    """Returns Table 1: text, in bits."""
    kept = record("table1.small")
    found = {(row["model"], row["metric"]): row for row in kept["rows"]}
    settings = kept["settings"]
    lines = ["| model | steps | joint | marginal | conditional |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(row["model"] for row in kept["rows"]):
        values = [with_error(found[name, f"{metric}_bits"]) for metric in METRICS]
        if name in ASKS_NO_CONDITIONALS:
            values[-1] = "not trained"
        steps, meaning = settings["steps"][name], TABLE1[name].meaning
        lines.append(f"| `{name}`: {meaning} | {steps:,} | {' | '.join(values)} |")
    lines += ["", "| paired difference | joint | marginal | conditional |", "|---|---|---|---|"]
    pairs = {(p["a"], p["b"], p["metric"]): p for p in kept["paired"]}
    for a, b in dict.fromkeys((p["a"], p["b"]) for p in kept["paired"]):
        cells = [pairs[a, b, f"{metric}_bits"] for metric in METRICS]
        values = [f"{c['difference']:+.3f} ± {c['se']:.3f}" for c in cells]
        if {a, b} & set(ASKS_NO_CONDITIONALS):
            values[-1] = ""
        lines.append(f"| `{a}` - `{b}` | {' | '.join(values)} |")
    words = (
        f"Bits: joint and marginal per character of {settings['length']}, conditional per "
        f"queried character with a random half given; {settings['rows']} test chunks of "
        f"{settings['data']['name']}; {settings['layers']} layers of width {settings['width']}, "
        f"as many steps as each makes in {settings['settings']['minutes']:g} minutes of a busy "
        f"core. {source(kept)}"
    )
    return "\n".join([*lines, "", words])


def table3() -> str:
    """Returns Table 3: joints and marginals of images, in bits per dimension."""
    kept = record("table3.small")
    settings = next(iter(kept["settings"].values()))
    words = f"Bits per dimension, less is better; {settings['rows']} test images, "
    return _by_model(kept, digits=3, words=f"{words}{_minutes(settings)}")


def table3_mnist() -> str:
    """Returns Table 3 on binarised MNIST, in nats per image, as published elsewhere."""
    kept = record("table3.mnist")
    settings = next(iter(kept["settings"].values()))
    rows = [
        {**row, "value": -row["value"] * MNIST_NATS, "se": row["se"] * MNIST_NATS}
        for row in kept["rows"]
    ]
    paired = [
        {**pair, "difference": -pair["difference"] * MNIST_NATS, "se": pair["se"] * MNIST_NATS}
        for pair in kept["paired"]
    ]
    words = f"Nats per image, more is better; {settings['rows']} test images, {_minutes(settings)}"
    return _by_model({**kept, "rows": rows, "paired": paired}, digits=2, words=words)


def table4() -> str:
    """Returns Table 4: marginals on the UCI data sets, in nats."""
    return _public_tables("table4.small")


def table5() -> str:
    """Returns Table 5: conditionals on the UCI data sets, in nats."""
    return _public_tables("table5.small")


def _public_tables(name: str) -> str:
    kept = record(name)
    settings = next(iter(kept["settings"].values()))
    words = f"Nats, more is better; {settings['rows']} test rows, {_minutes(settings)}"
    return _by_model(kept, digits=2, words=words)


def _minutes(settings: Mapping[str, Any]) -> str:
    return f"{settings['settings']['minutes']:g} minutes of one core each."


def _by_model(kept: Mapping[str, Any], *, digits: int, words: str) -> str:
    """Returns a row for each data set and metric, a column for each model; then differences."""
    rows = {(row["dataset"], row["metric"], row["model"]): row for row in kept["rows"]}
    models = list(dict.fromkeys(row["model"] for row in kept["rows"]))
    lines = [f"| | {' | '.join(f'`{m}`' for m in models)} |", "|---" * (1 + len(models)) + "|"]
    for dataset, metric in dict.fromkeys((d, m) for d, m, _ in rows):
        cells = [rows[dataset, metric, model] for model in models]
        values = " | ".join(
            f"{cell['value']:.{digits}f} ± {cell['se']:.{digits}f}" for cell in cells
        )
        lines.append(f"| {dataset}: {_metric_words(metric)} | {values} |")
    paired = {(p["dataset"], p["metric"], p["a"], p["b"]): p for p in kept["paired"]}
    names = list(dict.fromkeys((a, b) for _, _, a, b in paired))
    heads = " | ".join(f"`{a}` - `{b}`" for a, b in names)
    lines += ["", f"| paired difference | {heads} |", "|---" * (1 + len(names)) + "|"]
    for dataset, metric in dict.fromkeys((d, m) for d, m, _, _ in paired):
        differences = [paired[dataset, metric, a, b] for a, b in names]
        values = " | ".join(
            f"{p['difference']:+.{digits}f} ± {p['se']:.{digits}f}" for p in differences
        )
        lines.append(f"| {dataset}: {_metric_words(metric)} | {values} |")
    return "\n".join([*lines, "", f"{words} {source(kept)}"])


def _metric_words(metric: str) -> str:
    bare = metric.removesuffix("_nats").removesuffix("_bits")
    return bare.replace("_", " ").replace(MILLISECONDS, "ms per row")


def table6() -> str:
    """Returns Table 6: rewards in the kitchen, their differences, and coverage."""
    kept = record("table6.small")
    rows = {(row["model"], row["metric"]): row for row in kept["rows"]}
    lines = ["| | tasks of four | ± episodes | ± trainings | paper |", "|---|---|---|---|---|"]
    for name, row in ROWS.items():
        found, seeds = rows[name, REWARD], rows[name, REWARD + BY_SEED]
        paper = "{:.2f} ± {:.2f}".format(*PAPER_REWARD[name]) if name in PAPER_REWARD else ""
        cells = f"{found['value']:.2f} | {found['se']:.2f} | {seeds['se']:.2f} | {paper}"
        lines.append(f"| `{name}`: {row.meaning} | {cells} |")
    lines += ["", "| paired difference | mean | ± test | ± trainings |", "|---|---|---|---|"]
    paired = {(p["a"], p["b"], p["metric"]): p for p in kept["paired"]}
    for (a, b, metric), pair in paired.items():
        if not metric.endswith(BY_SEED):
            words = f", nats of {NATS[metric]}" if metric in NATS else ""
            by_seed = paired[a, b, metric + BY_SEED]["se"]
            cells = f"{pair['difference']:+.2f} | {pair['se']:.2f} | {by_seed:.2f}"
            lines.append(f"| `{a}` - `{b}`{words} | {cells} |")
    coverage = [metric for name, metric in rows if name == "mac" and metric.startswith(COVERAGE)]
    lines += ["", "| coverage of 80% intervals | `mac` | `uniform` |", "|---|---|---|"]
    for metric in (one for one in coverage if not one.endswith(BY_SEED)):
        cells = " | ".join(with_error(rows[name, metric]) for name in LIKELIHOODS)
        lines.append(f"| {metric.removeprefix(COVERAGE + '_').replace('_', ' ')} | {cells} |")
    return "\n".join([*lines, "", source(kept)])


def tables_default() -> str:
    """Returns the likelihoods of a default `TableModel()` beside others."""
    kept = record("tables_default")
    lines = ["| | `TableModel()` | others |", "|---|---|---|"]
    metrics = {
        "joint_nats": "joint, nats per row",
        "income_accuracy": "income given the rest: accuracy",
        "income_log_loss": "income given the rest: log-loss",
    }
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in kept["rows"]:
        if row["metric"] in metrics:
            found = cells.setdefault((row["dataset"], row["metric"]), {})
            found[row["model"]] = with_error(row) if row["se"] else f"{row['value']:.2f}"
    for (dataset, metric), found in cells.items():
        ours = found.pop("TableModel")
        others = "; ".join(f"{name} {value}" for name, value in found.items())
        lines.append(f"| {dataset}: {metrics[metric]} | {ours} | {others} |")
    return "\n".join([*lines, "", source(kept)])


def figure3() -> str:
    """Returns Figure 3: marginal bits of each law."""
    kept = record("figure3.small")
    differences = {pair["a"]: pair for pair in kept["paired"]}
    lines = ["| law | marginal bits | minus `ardm` |", "|---|---|---|"]
    for row in kept["rows"]:
        pair = differences.get(row["model"])
        cell = "" if pair is None else f"{pair['difference']:+.4f} ± {pair['se']:.4f}"
        name, meaning = row["model"], FIGURE3[row["model"]].meaning
        lines.append(f"| `{name}`: {meaning} | {with_error(row)} | {cell} |")
    return "\n".join([*lines, "", source(kept)])


def mask_sampling() -> str:
    """Returns the speed and memory of the exact sampler against the paper's."""
    kept = record("mask_sampling.paper")
    lines = [
        "| | faster than the paper's resampling | less memory | time over the floor |",
        "|---|---|---|---|",
    ]
    for name, (batch, n) in kept["settings"]["shapes"].items():
        found = {row["metric"]: row for row in kept["rows"] if row["dataset"] == name}
        speedup, floor = found["speedup"], found["over_floor"]
        lines.append(
            f"| N = {n}, batch {batch} | {speedup['value']:,.0f} ± {speedup['se']:,.0f} times "
            f"| {found['memory_ratio']['value']:,.0f} times "
            f"| {floor['value']:.2f} ± {floor['se']:.2f} |"
        )
    return "\n".join([*lines, "", source(kept)])


def queries() -> str:
    """Returns the speed-ups of one pass."""
    titles = {
        "log_prob_vs_loop": "joint likelihoods: one pass, against N passes of the same network",
        "log_prob_vs_batched": "the same, against the batched path of a masked network",
        "batched_vs_loop_1row": "a masked network, one row: the batched path, against a loop",
        "sample_cached_batch1": "sampling a row: with the cache, against without",
        "sample_cached_batch32": "sampling 32 rows: with the cache, against without",
        "train_step_over_floor": "a training step, against that of a bare `nn.TransformerEncoder`",
    }
    return _named(record("queries.paper"), titles, "times faster")


def images() -> str:
    """Returns the speed-ups of one pass and of the cache on images."""
    titles = {
        "log_prob_vs_loop": "the likelihood of an image: one pass of a path network, against a "
        "loop over a U-Net of as many parameters",
        "inpaint_cached": "inpainting the lower half, three times: with the cache, against a pass "
        "for each pixel",
        "inpaint_cached_1": "the same, once",
    }
    return _named(record("images"), titles, "times faster")


def robot() -> str:
    """Returns the latency of a decision of a policy."""
    titles = {
        "fill": "four dimensions given, five completed",
        "full": "no dimension given",
        "masked": "no dimension given, with a masked network: a pass for each dimension",
        "cloning": "behavioural cloning",
    }
    large = {f"paper_{name}": f"{title}; the paper's size" for name, title in titles.items()}
    return _named(record("robot"), titles | large, "CPU milliseconds")


def serve() -> str:
    """Returns the latency and throughput of the server."""
    titles = {
        "p50_ms": "one client: median latency, ms",
        "p50_ms_100": "100 concurrent clients: median latency, ms",
        "p99_ms_100": "100 concurrent clients: 99th percentile of the latency, ms",
        "requests_per_s": "100 concurrent clients: requests per second",
        "times_one_client": "the same, divided by that of one client",
        "errors": "failed requests",
        "rss_growth": "memory at the end, divided by that after the warm-up",
    }
    return _named(record("serve"), titles, "value")


def _named(kept: Mapping[str, Any], titles: Mapping[str, str], unit: str) -> str:
    """Returns the numbers of a record that have a title."""
    lines = [f"| metric | description | {unit} |", "|---|---|---|"]
    found = {row["metric"]: row for row in kept["rows"]}
    for name, title in titles.items():
        cell = with_error(found[name], digits=2)
        cell += " of its time" if name.endswith("_over_floor") else ""
        lines.append(f"| `{name}` | {title} | {cell} |")
    return "\n".join([*lines, "", source(kept)])


TABLES: dict[str, Callable[[], str]] = {
    "calibration": calibration,
    "contest": contest,
    "contest_summary": contest_summary,
    "contest_one_minute": contest_one_minute,
    "contest_ten_seconds": contest_ten_seconds,
    "any_order_cost": any_order_cost,
    "counted_answers": counted_answers,
    "figure3": figure3,
    "fit_speed": fit_speed,
    "images": images,
    "known_networks": known_networks,
    "mask_sampling": mask_sampling,
    "paper": paper,
    "queries": queries,
    "query_laws": lambda: variant_table("query_laws"),
    "robot": robot,
    "serve": serve,
    "table1": table1,
    "table3": table3,
    "table3_mnist": table3_mnist,
    "table4": table4,
    "table5": table5,
    "table6": table6,
    "tables_default": tables_default,
    "table7": table7,
    "table_orders": lambda: variant_table("table_orders"),
    "text_orders": lambda: variant_table("text_orders"),
    "table_networks": lambda: variant_table("table_networks"),
    "table_networks_short": lambda: variant_table("table_networks_short"),
}


def filled(text: str) -> str:
    """Returns a document with its tables replaced."""
    return BLOCK.sub(lambda m: f"{m[1]}{TABLES[m[2]]()}\n{m[3]}", text)


app = App(
    name="python -m experiments.tables",
    default_parameter=Parameter(negative=()),
    help=(__doc__ or "").splitlines()[0],
)


@app.default
def main(*, check: bool = False) -> None:
    """Writes the tables, or checks them.

    Args:
        check: Write nothing, and exit with code 2 if a table is out of date.
    """
    stale = [path for path in DOCUMENTS if filled(path.read_text()) != path.read_text()]
    if check and stale:
        raise ConfigError(f"{', '.join(path.name for path in stale)}: run `make tables`.")
    for path in stale:
        path.write_text(filled(path.read_text()))


if __name__ == "__main__":
    run(app)
