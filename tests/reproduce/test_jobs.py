"""Jobs of an experiment do not outlive the process that began them."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from anyorder.reproduce.study import run_jobs

PATIENCE = 120


def _tell_and_wait(_name, folder):
    (folder.parent / "began").write_text(str(os.getpid()))
    Event().wait(PATIENCE)
    return {}


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="watching a process needs Linux")
def test_a_job_ends_with_its_parent(tmp_path):
    began = tmp_path / "began"
    os.mkfifo(began)
    command = [sys.executable, "-m", "tests.reproduce.test_jobs", str(tmp_path)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as parent:
        job = os.pidfd_open(int(began.read_text()))  # waits until the job tells
        parent.send_signal(signal.SIGKILL)
    try:
        ended, _, _ = select.select([job], [], [], PATIENCE / 2)
        assert ended == [job]
    finally:
        os.close(job)


if __name__ == "__main__":
    run_jobs(_tell_and_wait, ["one"], Path(sys.argv[1]), identity={}, at_once=2)
