"""Speed-ups of one pass: likelihoods, sampling and training against loops of passes.

    python -m benchmarks.queries --json

6 layers, width 384, N = 250 characters, 16 rows by default, one thread. The two sides of a ratio
take turns in one process. A ratio is the mean over rounds, with its standard error. Long baselines
are timed in part and scaled by the number of passes.

    log_prob_vs_loop       joint likelihoods: one pass / the published N passes of N tokens of the
                           same network (one of these passes is timed)
    log_prob_vs_batched    the same: one pass / the batched path of the masked network (2 rows are
                           timed)
    batched_vs_loop_1row   one row: the batched path / the published loop of full passes that
                           predict all variables (50 of them are timed)
    sample_cached_batch1   sampling full rows: with the cache / the same network without it (timed
    sample_cached_batch32  at nine lengths and integrated over all)
    train_step_over_floor  training step / forward and backward of a bare `nn.TransformerEncoder` of
                           the same size on as many tokens
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from cyclopts import App
from torch import Tensor, nn

from anyorder.cli.app import run
from anyorder.errors import check_count
from anyorder.heads.distributions import CategoricalConditionals
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob, sample
from anyorder.lattice.masks import FixedCardinality
from anyorder.lattice.protocols import RemoveGreatest, lexicographic
from anyorder.networks.contracts import MaskedNetwork, PathNetwork
from anyorder.networks.path_transformer import PathTransformer
from anyorder.networks.transformer import Transformer
from anyorder.reproduce.record import check_record
from anyorder.text.data import TEXT8_ALPHABET, text_schema
from anyorder.training.losses import PathLoss
from benchmarks.measuring import (
    Work,
    all_steps,
    peak_bytes,
    publish_ratios,
    seconds,
    times_faster,
)

LAYERS, WIDTH, HEADS, N, ROWS = 6, 384, 6, 250, 16


def build(
    network: type[PathTransformer] | type[Transformer], *, n: int | None = None
) -> AnyOrderModel:
    """Returns an untrained model of the benchmark's size."""
    n = n or N
    schema = text_schema(TEXT8_ALPHABET, n)
    torch.manual_seed(0)
    net: MaskedNetwork | PathNetwork[Any] = network(schema, layers=LAYERS, width=WIDTH, heads=HEADS)
    conditionals = CategoricalConditionals(schema, width=WIDTH)
    return AnyOrderModel(schema, net, conditionals, RemoveGreatest(lexicographic(n))).eval()


def rows(number: int, n: int | None = None) -> Tensor:
    """Returns random text."""
    return torch.randint(len(TEXT8_ALPHABET), (number, n or N))


def log_prob_vs_loop() -> float:
    """Compares one pass for all factors with N passes of N tokens for one factor each."""
    model, x = build(PathTransformer), rows(ROWS)
    last = (torch.arange(N) < N - 1).expand(ROWS, -1)
    targets = torch.full((ROWS, 1), N - 1)

    def one_factor() -> object:
        with torch.no_grad():
            return model.predict(x, last, targets).log_prob(x[:, -1:])

    return N * seconds(one_factor) / seconds(lambda: log_prob(model, x))


def log_prob_vs_batched() -> float:
    """Compares one pass of the path network with the batched path of the masked one."""
    path, masked, part = build(PathTransformer), build(Transformer), 2
    batched = seconds(lambda: log_prob(masked, rows(part))) * ROWS / part
    return batched / seconds(lambda: log_prob(path, rows(ROWS)))


def batched_vs_loop_1row() -> float:
    """Compares the steps of one path as rows of batches with full passes one by one."""
    model, x, steps = build(Transformer), rows(1), range(0, N, 5)
    order = torch.arange(N)

    def one_pass(t: int) -> object:
        features = model.network(x, (order < t)[None])
        return model.conditionals(features, order[None]).log_prob(x)[:, t]

    def loop() -> object:
        with torch.no_grad():
            return [one_pass(t) for t in steps]

    return seconds(loop) * N / len(steps) / seconds(lambda: log_prob(model, x))


def sample_cached(batch: int) -> float:
    """Compares sampling with the cache to a fused pass over the path so far for each step."""
    model, x = build(PathTransformer), rows(batch)
    nothing, order = torch.zeros(batch, N, dtype=torch.bool), torch.arange(N)
    steps = [0, *range(31, N - 1, 31), N - 1]

    def uncached(t: int) -> Work:
        query = (order <= t).expand(batch, -1)

        def step() -> object:
            with torch.no_grad():
                path = model.network(x, query, nothing, order)
                return model.conditionals(path.features, path.target).sample()

        return step

    return all_steps(uncached, steps) / seconds(lambda: sample(model, x))


def train_step_over_floor() -> float:
    """Compares a training step of the path network with a bare encoder on as many tokens."""
    model, x = build(PathTransformer).train(), rows(ROWS)
    objective = PathLoss(FixedCardinality(N, N))
    sampled = objective.draw(model, ROWS)
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    tokens = torch.randn(2 * ROWS, N, WIDTH)  # two streams; short rows make its attention cheapest
    step = seconds(lambda: objective.loss(model, x, sampled).mean().backward())
    return step / seconds(lambda: encoder(tokens).mean().backward())


BENCHMARKS: dict[str, Callable[[], float]] = {
    "log_prob_vs_loop": log_prob_vs_loop,
    "log_prob_vs_batched": log_prob_vs_batched,
    "batched_vs_loop_1row": batched_vs_loop_1row,
    "sample_cached_batch1": lambda: sample_cached(1),
    "sample_cached_batch32": lambda: sample_cached(32),
    "train_step_over_floor": train_step_over_floor,
}

app = App(name="python -m benchmarks.queries", help=(__doc__ or "").splitlines()[0])


@app.default
def main(
    *,
    rounds: int = 3,
    only: list[str] | None = None,
    json: bool = False,
    record: Path | None = None,
) -> None:
    """Measures every ratio.

    Args:
        rounds: Number of measurements of each, after one warm-up.
        only: Names of the ratios; all by default.
        json: Print one JSON object in place of the table.
        record: File to which the numbers are written with the command and the commit.
    """
    check_count("rounds", rounds, low=2)
    check_record(record)
    torch.set_num_threads(1)
    chosen = {name: BENCHMARKS[name] for name in only or BENCHMARKS}
    publish_ratios(
        times_faster(chosen, rounds),
        rounds,
        command="python -m benchmarks.queries",
        settings={"layers": LAYERS, "width": WIDTH, "N": N, "rows": ROWS, "threads": 1},
        title=f"{LAYERS} layers, width {WIDTH}, N = {N}: times faster (the last: over)",
        record=record,
        json=json,
    )


@app.command
def growth(*, out: Path = Path("docs/growth.png"), lengths: list[int] | None = None) -> None:
    """Plots the time and memory of joint likelihoods by N, for 4 rows.

    Args:
        out: Image file; the numbers go to a CSV file beside it.
        lengths: Values of N.
    """
    torch.set_num_threads(1)
    few, lines = 4, []
    for n in lengths or [64, 128, 250, 512]:
        for name, network in (("path", PathTransformer), ("masked", Transformer)):
            model = build(network, n=n)
            # A masked network takes n passes for each row, so one row represents the others.
            part = few if name == "path" else 1
            x = rows(part, n)
            time = seconds(lambda m=model, x=x: log_prob(m, x)) * few / part  # type: ignore[misc]
            memory = peak_bytes(lambda m=model, x=x: log_prob(m, x))  # type: ignore[misc]
            lines.append((name, n, round(time, 4), memory))
    out.parent.mkdir(parents=True, exist_ok=True)
    text = "network,N,seconds,peak_bytes\n" + "\n".join(",".join(map(str, line)) for line in lines)
    out.with_suffix(".csv").write_text(text + "\n")
    _plot_growth(out, lines)


def _plot_growth(out: Path, lines: list[tuple[str, int, float, int]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for axes, column, label in zip(
        figure.subplots(1, 2), (2, 3), ("seconds for 4 rows", "peak memory, MB"), strict=True
    ):
        for name in ("path", "masked"):
            mine = [line for line in lines if line[0] == name]
            values = [float(line[column]) / (1e6 if column == 3 else 1) for line in mine]
            axes.plot([line[1] for line in mine], values, marker="o", label=name)
        axes.set(xscale="log", yscale="log" if column == 2 else "linear", xlabel="N", ylabel=label)
        lengths = sorted({line[1] for line in lines})
        axes.set_xticks(lengths, labels=[str(n) for n in lengths])
        axes.minorticks_off()
        if column == 3:
            axes.set_ylim(bottom=0)
        axes.legend()
    figure.savefig(out, dpi=160)


if __name__ == "__main__":
    run(app)
