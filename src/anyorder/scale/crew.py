"""Who works on the parts of a table: this process, some on this machine, or a Dask cluster.

Parts are read here, one after another, and handed out; what comes back is yielded in the order in
which it was read, so that a file is written as if one process had done it. Only a few parts are
under way at a time: memory stays flat however long the file is. A part is a pure function of the
rows and the seed that it holds, so that a part whose worker died is simply done again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from anyorder.errors import AnyOrderError, ConfigError, check_count
from anyorder.estimators.loading import load

Part = TypeVar("Part")
Result = TypeVar("Result")

Crew = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
"""Gives what a function says of each part, in order."""

AHEAD = 2
"""Parts that are under way for each worker: one that it works on, and one that waits for it."""

PATIENCE = 10
"""Seconds within which a scheduler must answer."""

RETRIES = 3
"""How often a part is begun anew whose worker died."""


@contextmanager
def crew(*, workers: int = 1, cluster: str | None = None) -> Iterator[Crew]:
    """A crew, which goes home at the end.

    Args:
        workers: Processes on this machine; one is this process itself.
        cluster: The address of a Dask scheduler, such as "tcp://10.0.0.1:8786", in place of these.
            Its workers need anyorder, and the folder of the model under the same path.
    """
    check_count("workers", workers)
    if cluster is None and workers == 1:
        yield map
        return
    distributed = _engine()
    with _client(distributed, workers, cluster) as client:
        ahead = AHEAD * max(1, sum(client.nthreads().values()))
        yield lambda function, parts: in_order(client, function, parts, ahead=ahead)


def in_order(
    client: Any, function: Callable[[Part], Result], parts: Iterable[Part], *, ahead: int
) -> Iterator[Result]:
    """What workers make of parts, in the order of the parts, so many of them under way at a time.

    Args:
        client: Of Dask.
        function: What is done with a part.
        parts: Read as they are needed.
        ahead: How many are under way.
    """
    under_way: deque[Any] = deque()
    for part in parts:
        under_way.append(client.submit(function, part, retries=RETRIES, pure=False))
        if len(under_way) >= ahead:
            yield _result(under_way.popleft())
    while under_way:
        yield _result(under_way.popleft())


@lru_cache(maxsize=1)
def loaded(folder: str) -> Any:
    """The model of a folder, read once in each process."""
    return load(Path(folder))


def _client(distributed: Any, workers: int, cluster: str | None) -> Any:
    if cluster is None:
        return distributed.Client(_local(distributed, workers))
    try:
        return distributed.Client(cluster, timeout=PATIENCE)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f'`cluster` must be the address of a Dask scheduler that runs; got "{cluster}" '
            f"({' '.join(str(error).split())[:200]}). Start one with: dask scheduler. It says its "
            'address, such as "tcp://10.0.0.1:8786".'
        ) from None


def _local(distributed: Any, workers: int) -> Any:
    """Processes of this machine; torch has threads of its own, so each has one."""
    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
    )


def _result(future: Any) -> Any:
    try:
        return future.result()
    except AnyOrderError:
        raise
    except _engine().scheduler.KilledWorker as error:
        raise ConfigError(
            f"A part of the table ended its worker {RETRIES} times: it may need more memory."
        ) from error
    finally:
        future.release()


def _engine() -> Any:
    try:
        import distributed
    except ImportError:
        raise ConfigError('Several workers need Dask: pip install "anyorder[scale]".') from None
    return distributed
