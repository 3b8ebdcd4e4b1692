"""Tables of what things take, from their records."""

from collections.abc import Mapping
from typing import Any

from experiments.records import record, source, with_error


def mask_sampling() -> str:
    """The exact sampler against the paper's."""
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
    """What one pass buys."""
    titles = {
        "log_prob_vs_loop": "full likelihoods: one pass, against N passes of the same network",
        "log_prob_vs_batched": "the same, against the batched walk of a masked network",
        "batched_vs_loop_1row": "a masked network, one row: the batched walk, against a loop",
        "sample_cached_batch1": "drawing a row: with the cache, against without",
        "sample_cached_batch32": "drawing 32 rows: with the cache, against without",
        "train_step_over_floor": "a training step, against that of a bare `nn.TransformerEncoder`",
    }
    return _named(record("queries.paper"), titles, "times faster")


def images() -> str:
    """What one pass and a cache buy on images."""
    titles = {
        "log_prob_vs_loop": "the likelihood of an image: one pass of a path network, against a "
        "loop over a U-Net of as many weights",
        "inpaint_cached": "the lower half, three times: with the cache, against a pass for each "
        "pixel",
        "inpaint_cached_1": "the same, once",
    }
    return _named(record("images"), titles, "times faster")


def robot() -> str:
    """What a decision takes."""
    titles = {
        "fill": "four dimensions told, five filled in",
        "full": "nothing told",
        "masked": "nothing told, with a masked network: a pass for each dimension",
        "cloning": "behavioural cloning",
    }
    large = {f"paper_{name}": f"{title}; the paper's size" for name, title in titles.items()}
    return _named(record("robot"), titles | large, "milliseconds of one core")


def serve() -> str:
    """What a request takes."""
    titles = {
        "p50_ms": "one client: the median answer, in ms",
        "p50_ms_100": "a hundred at once: the median answer, in ms",
        "p99_ms_100": "a hundred at once: 99 of 100 answers are there after, in ms",
        "requests_per_s": "a hundred at once: answers a second",
        "times_one_client": "that, divided by the answers a second of one client",
        "errors": "answers that failed",
        "rss_growth": "memory at the end, divided by that after the warm-up",
    }
    return _named(record("serve"), titles, "value")


def _named(kept: Mapping[str, Any], titles: Mapping[str, str], unit: str) -> str:
    """The numbers of a record that have a title."""
    lines = [f"| in the command's output | what | {unit} |", "|---|---|---|"]
    found = {row["metric"]: row for row in kept["rows"]}
    for name, title in titles.items():
        cell = with_error(found[name], digits=2)
        cell += " of its time" if name.endswith("_over_floor") else ""
        lines.append(f"| `{name}` | {title} | {cell} |")
    return "\n".join([*lines, "", source(kept)])
