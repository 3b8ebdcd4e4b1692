"""Images of one episode of shared autonomy: a strip (PNG) and a short animation (GIF).

    python -m experiments.robot_pictures runs/robot/small --out docs

The episode that completes the most tasks of several is rendered. Needs `anyorder[robot,image]`, and
EGL or OSMesa (MUJOCO_GL=osmesa) without a display.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from cyclopts import App
from rich.console import Console
from rich.progress import track

from anyorder.cli.app import run
from anyorder.errors import ConfigError, check_count
from anyorder.images.files import write_image
from anyorder.reproduce.robot_models import EVERY_FEW, POLICY
from anyorder.robots.episodes import Episode, rollout
from anyorder.robots.kitchen import Kitchen, need_simulator
from anyorder.robots.policies import CloningPolicy, ConditionalPolicy, SharedAutonomy

SIZE = (180, 240)
"""Height and width of an image."""

FIRST_SEED = 500
"""First seed of the rendered episodes, none of which are reported."""

AFTER = 6
"""Steps of the animation after the last completed task."""

Picture = Any
"""Bytes of shape ``(height, width, 3)``."""

app = App(name="python -m experiments.robot_pictures", help=(__doc__ or "").splitlines()[0])


@app.default
def main(
    runs: Path, *, out: Path = Path("docs"), seed: int = 0, tries: int = 10, frames: int = 40
) -> None:
    """Writes kitchen.png and kitchen.gif.

    Args:
        runs: Folder of a run of table6, such as runs/robot/small.
        out: Folder of the images.
        seed: Seed of the trained policies.
        tries: Number of episodes, of which the best is rendered.
        frames: Frames of the animation.
    """
    need_simulator()
    check_count("tries", tries)
    check_count("frames", frames, low=2)
    torch.set_num_threads(1)
    operator = CloningPolicy.load(runs / f"bc-{seed}" / POLICY)
    assistant = ConditionalPolicy.load(runs / f"mac-{seed}" / POLICY)
    policy = SharedAutonomy(operator, assistant, EVERY_FEW[0])
    best = best_episode(policy, tries)
    if not best.completed:
        raise ConfigError(f"None of {tries} episodes completed a task: try another `seed`.")
    last = min(best.steps, best.completed[-1][1] + 1 + AFTER)
    moments = [0, *(step + 1 for _, step in best.completed)]
    shown = np.linspace(0, last, frames).round().astype(int).tolist()
    pictures = film(policy, best.seed, sorted({*moments, *shown}))
    write_image(out / "kitchen.png", np.concatenate([pictures[i] for i in moments], axis=1))
    write_animation([pictures[i] for i in shown], out / "kitchen.gif")
    done = ", ".join(f"{task} (step {step})" for task, step in best.completed)
    Console().print(f"episode {best.seed}: {done}")


def best_episode(policy: SharedAutonomy, tries: int) -> Episode:
    """Returns the episode that completes the most tasks, the fastest of several."""
    kitchen = Kitchen()
    episodes = [rollout(policy, kitchen, FIRST_SEED + i) for i in range(tries)]
    kitchen.close()
    return max(episodes, key=lambda one: (one.reward, -one.completed[-1][1] if one.reward else 0))


def film(policy: SharedAutonomy, seed: int, steps: list[int]) -> dict[int, Picture]:
    """Renders an episode before some of its steps; an image takes a second without a GPU."""
    kitchen, pictures = Kitchen(size=SIZE), {}
    policy.start(seed)
    seen, now = kitchen.start(seed), 0
    for step in track(steps, "rendering", console=Console(stderr=True)):
        for _ in range(step - now):
            seen = kitchen.step(policy.act(seen)).observation
        now = step
        pictures[step] = kitchen.picture()
    kitchen.close()
    return pictures


def write_animation(pictures: list[Picture], path: Path) -> None:
    """Writes a small GIF of few colours, at about the speed of the robot."""
    from PIL import Image

    frames = [Image.fromarray(one).quantize(colors=48) for one in pictures]
    frames[0].save(
        path, save_all=True, append_images=frames[1:], duration=150, loop=0, optimize=True
    )


if __name__ == "__main__":
    run(app)
