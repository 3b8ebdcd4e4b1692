"""Two hosts train together, on copies of the weights or on a share each; one may be lost.

The hosts are network namespaces of this machine, joined by a cable (a veth pair): what crosses it
crosses a network.
"""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anyorder.saving.checkpoint import load_model
from anyorder.training.loop import fit
from anyorder.training.losses import ArdmLoss
from tests.saving.test_checkpoint import toy_model
from tests.training.test_training import SETTINGS, ToyData, held_out, lines

ROOT = Path(__file__).parents[2]
PATIENCE = 150
LOST_AT = 8
"""The step at which a host is lost: checkpoints are at multiples of three."""

TOGETHER = replace(SETTINGS, draws=1)


def _ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True)


@pytest.fixture
def hosts():
    """The names of two hosts at 10.77.0.1 and 10.77.0.2."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("two hosts need root and iproute2")
    names = [f"anyorder-{os.getpid()}-{side}" for side in "ab"]
    try:
        for name in names:
            _ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
    try:
        a, b = names
        _ip("-n", a, "link", "add", "cable", "type", "veth", "peer", "cable", "netns", b)
        for number, name in enumerate(names, 1):
            _ip("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", "cable")
            for device in ("cable", "lo"):
                _ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def started(host, folder, *, sharding):
    """One host's share of the training, by torchrun."""
    command = ["ip", "netns", "exec", host, sys.executable, "-m", "torch.distributed.run"]
    command += [
        "--nnodes",
        "1:2" if sharding == "none" else "2",
        "--nproc-per-node",
        "1",
        "--max-restarts",
        "9" if sharding == "none" else "0",
    ]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "10.77.0.1:29400", "--rdzv-id", "toy"]
    is_first = host.endswith("a")
    waits = f"is_host={is_first},join_timeout=120,last_call_timeout=5,keep_alive_interval=1"
    command += ["--rdzv-conf", waits, "--local-addr", f"10.77.0.{1 if is_first else 2}"]
    command += ["-m", "tests.training.test_two_hosts", str(folder), host[-1], sharding]
    settings = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "cable"}
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **settings})


def test_a_lost_host_is_gone_on_without(hosts, tmp_path):
    first, second = ended(hosts, tmp_path / "run", sharding="none")
    assert second == -signal.SIGKILL, "the second host was lost on the way"
    assert first == 0
    sizes = (tmp_path / "run" / "sizes").read_text().split()
    assert sizes[0] == "2"
    assert sizes[-1] == "1"
    assert_as_alone(tmp_path)


def test_hosts_hold_a_share_of_the_weights_each(hosts, tmp_path):
    assert ended(hosts, tmp_path / "run", sharding="fsdp") == [0, 0]
    assert (tmp_path / "run" / "sizes").read_text().split() == ["2", "2"]
    assert_as_alone(tmp_path)


def ended(hosts, folder, *, sharding):
    """How the two ended that trained together."""
    both = [started(host, folder, sharding=sharding) for host in hosts]
    try:
        return [host.wait(PATIENCE) for host in both]
    finally:
        for host in both:
            host.kill()
            host.wait(PATIENCE)


def assert_as_alone(tmp_path):
    alone = toy_model()
    settings = {"settings": TOGETHER, "valid": held_out, "folder": tmp_path / "alone"}
    fit(alone, ToyData(), ArdmLoss(), **settings)
    ends = [lines(tmp_path / name)[-1] for name in ("alone", "run")]
    assert ends[0]["step"] == ends[1]["step"] == TOGETHER.steps
    assert ends[0]["held_out"] == pytest.approx(ends[1]["held_out"], abs=1e-4)
    for one, other in zip(
        alone.parameters(), load_model(tmp_path / "run").parameters(), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-4)


def _share(folder, side, sharding):
    """What one process does: trains, unless it is on the host that is lost."""
    folder.mkdir(parents=True, exist_ok=True)
    lost = folder / "lost"

    def lose_host():
        if side == "b" and not lost.exists():
            lost.touch()
            os.kill(os.getppid(), signal.SIGKILL)  # torchrun, and then the process that it started
            os.kill(os.getpid(), signal.SIGKILL)

    if os.environ["WORLD_SIZE"] == "1" and not lost.exists():
        sys.exit("the other host is not there yet: torchrun calls again")
    with (folder / "sizes").open("a") as sizes:
        sizes.write(f"{os.environ['WORLD_SIZE']}\n")
    data = ToyData(LOST_AT, lose_host) if sharding == "none" else ToyData()
    settings = replace(TOGETHER, sharding=sharding)
    fit(toy_model(), data, ArdmLoss(), settings=settings, valid=held_out, folder=folder)


if __name__ == "__main__":
    _share(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
