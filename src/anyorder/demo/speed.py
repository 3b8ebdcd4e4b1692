"""The demo's last act: two speed-ups over the paper's way, measured then and there."""

from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

from anyorder.commands.showing import show
from anyorder.demo.telling import say
from anyorder.estimators.text import TextModel
from anyorder.lattice import training_masks
from anyorder.masks import UniformCardinality
from anyorder.model import AnyOrderModel
from anyorder.protocols import RemoveGreatest, lexicographic
from anyorder.queries import log_prob
from anyorder.report.page import Grid, Section, Words
from anyorder.reproduce.resampling import papers_way

BATCH, VARIABLES = 128, 250
"""Masks of a batch, and the paper's text8."""

ROWS, ROUNDS = 16, 3
TITLES = ("what", "the paper's way", "here", "times faster")


def speed_act(model: TextModel, seed: int) -> Section:
    """Draws training masks, and asks for likelihoods, both ways."""
    say("The paper's way and ours, on this machine just now:")
    rows = [_sampling(seed), _asking(model.fitted())]
    show(TITLES, rows, numbers=TITLES[1:])
    words = (
        "The paper draws a hundred times as many training masks as it needs and resamples them; "
        "here they come from their law, exactly. A masked network takes a pass for every variable "
        "that is asked; a path network takes one for all."
    )
    return Section(
        "Two speed-ups, measured just now", [Words(words), Grid(TITLES, rows, TITLES[1:])]
    )


def _sampling(seed: int) -> list[str]:
    generator = torch.Generator().manual_seed(seed)
    law, protocol = UniformCardinality(VARIABLES), RemoveGreatest(lexicographic(VARIABLES))

    def exact() -> object:
        return training_masks(law, protocol, BATCH, reweight=True, generator=generator)

    slow = _seconds(lambda: papers_way(BATCH, VARIABLES, generator))
    return _row(f"{BATCH} training masks of {VARIABLES} variables", slow, _seconds(exact))


def _asking(model: AnyOrderModel) -> list[str]:
    """Whole likelihoods, in one pass and in one for each variable."""
    n, rank = model.num_variables, model.protocol.rank(torch.ones(1, model.num_variables).bool())
    x = torch.zeros(ROWS, n, dtype=torch.long)
    path = rank.flatten().argsort()

    def one_by_one() -> None:
        for step, variable in enumerate(path.tolist()):
            known = torch.zeros(n, dtype=torch.bool)
            known[path[:step]] = True
            log_prob(model, x, query=[variable], given=known)

    fast = _seconds(lambda: log_prob(model, x))
    slow = _seconds(one_by_one, rounds=1)
    return _row(f"p(x) of {ROWS} texts of {n} characters", slow, fast)


def _seconds(work: Callable[[], object], *, rounds: int = ROUNDS) -> float:
    work()  # the first is slower: memory is set up
    times = []
    for _ in range(rounds):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return median(times)


def _row(what: str, slow: float, fast: float) -> list[str]:
    return [what, f"{1000 * slow:,.0f} ms", f"{1000 * fast:,.1f} ms", f"{slow / fast:,.0f}"]
