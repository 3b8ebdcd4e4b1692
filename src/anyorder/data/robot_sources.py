"""Demonstrations of the kitchen, wherever they come from."""

from pathlib import Path

from anyorder.data.robot import Demonstrations
from anyorder.data.robot_files import read_d4rl, read_minari
from anyorder.data.robot_replay import LOGS, read_logs, replayed
from anyorder.errors import ConfigError

D4RL = ("kitchen-mixed-v0.hdf5", "kitchen/kitchen-mixed-v0.hdf5")
MINARI = ("mixed-v2", "kitchen/mixed-v2", "D4RL/kitchen/mixed-v2")
"""Where the "mixed" sets are in a folder of data."""


def load_kitchen(
    place: str | Path,
    cache: str | Path,
    *,
    processes: int | None = None,
    progress: bool = False,
) -> Demonstrations:
    """Reads demonstrations of the kitchen from a file or a folder.

    Args:
        place: A file of logs (demos.npz), D4RL's kitchen-mixed-v0.hdf5 or Minari's main_data.hdf5;
            or a folder with one of them, of which the logs are taken first.
        cache: A folder for what is replayed from logs.
        processes: How many replay at a time.
        progress: Whether a bar shows how the replay goes.
    """
    path = Path(place).expanduser()
    if (path / LOGS).exists() or path.suffix == ".npz":
        return replayed(read_logs(path), cache, processes=processes, progress=progress)
    if path.name == "main_data.hdf5" or (path / "data" / "main_data.hdf5").exists():
        return read_minari(path)
    if path.suffix in (".hdf5", ".h5"):
        return read_d4rl(path)
    for name in D4RL:
        if (path / name).exists():
            return read_d4rl(path / name)
    for name in MINARI:
        if (path / name / "data" / "main_data.hdf5").exists():
            return read_minari(path / name)
    raise ConfigError(
        f'There are no demonstrations of the kitchen in "{path}": put {LOGS}, D4RL\'s '
        f"{D4RL[0]}, or Minari's {MINARI[-1]} there."
    )
