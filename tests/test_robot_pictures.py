"""Pictures of episodes: the animation, and, where the simulator is installed, the choice."""

import importlib.util

import numpy as np
import pytest

from anyorder.cli.app import run
from experiments import robot_pictures


def test_an_animation_has_its_frames(tmp_path):
    image = pytest.importorskip("PIL.Image")
    frames = [np.full((6, 8, 3), shade, dtype=np.uint8) for shade in (0, 120, 250)]
    robot_pictures.write_animation(frames, tmp_path / "a.gif")
    with image.open(tmp_path / "a.gif") as read:
        assert (read.n_frames, read.size) == (3, (8, 6))


@pytest.mark.skipif(
    importlib.util.find_spec("gymnasium_robotics") is None, reason="needs anyorder[robot]"
)
def test_a_folder_without_policies_is_one_sentence(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(robot_pictures.app, [str(tmp_path)])
    assert stopped.value.code == 2
    assert "holds no checkpoint" in capsys.readouterr().err
