"""Speed-ups of one pass and of the cache on images of 16x16 pixels in 256 levels.

    python -m benchmarks.images --json

One thread. The two sides of a ratio take turns in one process. A ratio is the mean over rounds,
with its standard error. Long baselines are timed in part and scaled by the number of passes.

    log_prob_vs_loop   likelihood of an image: one pass of a path network / the published loop of
                       256 passes of a U-Net with as many parameters (8 are timed)
    inpaint_cached     inpainting the lower half three times, as `anyorder inpaint` does: with the
                       cache / a pass over the path so far for each pixel (timed at nine lengths
                       and integrated over all)
    inpaint_cached_1   the same, once: each step then reads all weights for one pixel
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from cyclopts import App
from torch import Tensor

from anyorder.cli.app import run
from anyorder.errors import check_count
from anyorder.heads.distributions import CategoricalConditionals
from anyorder.images.data import image_schema
from anyorder.images.model import pixel_coordinates
from anyorder.inference.model import AnyOrderModel
from anyorder.inference.queries import log_prob, sample
from anyorder.lattice.protocols import RemoveGreatest, raster
from anyorder.networks.path_transformer import PathTransformer
from anyorder.networks.unet import Unet
from anyorder.reproduce.record import check_record
from benchmarks.measuring import Work, all_steps, publish_ratios, seconds, times_faster

SIDE, LEVELS, TIMED = 16, 256, 8
PATH: dict[str, Any] = {"layers": 6, "width": 192, "heads": 6}
UNET: dict[str, Any] = {"down": 4, "middle": 2, "width": 88}
"""Sizes of a U-Net with as many parameters as the path network, within a few percent."""


def build(kind: str) -> AnyOrderModel:
    """Returns an untrained model of the benchmark's size."""
    shape = (SIDE, SIDE, 1)
    schema = image_schema(shape, LEVELS)
    torch.manual_seed(0)
    network: PathTransformer | Unet
    if kind == "path":
        network = PathTransformer(schema, **PATH, coordinates=pixel_coordinates(shape))
    else:
        network = Unet(schema, image_shape=shape, **UNET)
    conditionals = CategoricalConditionals(schema, width=network.width)
    return AnyOrderModel(schema, network, conditionals, RemoveGreatest(raster(*shape))).eval()


def images(number: int = 1) -> Tensor:
    """Returns random images."""
    return torch.randint(LEVELS, (number, SIDE * SIDE))


def log_prob_vs_loop() -> float:
    """Compares one pass for all factors with one pass of a masked network for each."""
    path, masked, x = build("path"), build("unet"), images()
    order = torch.arange(SIDE * SIDE)
    steps = range(0, SIDE * SIDE, SIDE * SIDE // TIMED)

    def one_pass(t: int) -> object:
        features = masked.network(x, (order < t)[None])
        return masked.conditionals(features, order[None]).log_prob(x)[:, t]

    def loop() -> object:
        with torch.no_grad():
            return [one_pass(t) for t in steps]

    return seconds(loop) * SIDE * SIDE / len(steps) / seconds(lambda: log_prob(path, x), repeats=3)


def inpaint_cached(draws: int = 3) -> float:
    """Compares inpainting with the cache to a pass over the path so far for each step."""
    model, x = build("path"), images()
    total = SIDE * SIDE
    half, order = total // 2, torch.arange(total)
    given = (order < half)[None]
    steps = [0, *range(15, half - 1, 16), half - 1]

    def uncached(t: int) -> Work:
        query = ((order >= half) & (order <= half + t)).repeat(draws, 1)

        def step() -> object:
            with torch.no_grad():
                path = model.network(x.repeat(draws, 1), query, given.repeat(draws, 1), order)
                return model.conditionals(path.features, path.target).sample()

        return step

    painting = seconds(lambda: sample(model, x, query=~given, given=given, n=draws))
    return all_steps(uncached, steps) / painting


BENCHMARKS: dict[str, Callable[[], float]] = {
    "log_prob_vs_loop": log_prob_vs_loop,
    "inpaint_cached": inpaint_cached,
    "inpaint_cached_1": partial(inpaint_cached, draws=1),
}

app = App(name="python -m benchmarks.images", help=(__doc__ or "").splitlines()[0])


@app.default
def main(*, rounds: int = 3, json: bool = False, record: Path | None = None) -> None:
    """Measures both ratios.

    Args:
        rounds: Number of measurements of each, after one warm-up.
        json: Print one JSON object in place of the table.
        record: File to which the numbers are written with the command and the commit.
    """
    check_count("rounds", rounds, low=2)
    check_record(record)
    torch.set_num_threads(1)
    sizes = {kind: build(kind).num_parameters for kind in ("path", "unet")}
    publish_ratios(
        times_faster(BENCHMARKS, rounds),
        rounds,
        command="python -m benchmarks.images",
        settings={"side": SIDE, "levels": LEVELS, "parameters": sizes, "threads": 1},
        title=f"{SIDE}x{SIDE} pixels, {sizes['path']:,} and {sizes['unet']:,} parameters: ratios",
        record=record,
        json=json,
    )


if __name__ == "__main__":
    run(app)
