"""The log-likelihood of a long walk from a few of its steps, without bias.

A masked network takes a pass for each step of a path: thousands for an image. Here the path is cut
into runs of L steps. At the beginning of a run, one pass guesses all of its variables, c_j =
log p(x_j | what is known there). One step J of the run is then drawn and asked as the walk asks it,
f_J = log p(x_J | what is known there, and the run up to J), and what the guess of it was wrong by
stands for the whole run:

    sum_j c_j + L (f_J - c_J)

Its expectation over J is sum_j f_j, whatever the guesses are. Its noise is that of f - c, not that
of f: a few neighbours on the path tell little about a pixel that the hundreds before them do not.
"""

import torch
from torch import Tensor

from anyorder.errors import check_count
from anyorder.model import AnyOrderModel
from anyorder.networks.paths import path_lists
from anyorder.queries import answering, checked_question, log_prob
from anyorder.random_sets import uniform


@answering
def stratified_log_prob(
    model: AnyOrderModel,
    x: Tensor,
    *,
    query: Tensor | None = None,
    given: Tensor | None = None,
    steps: int = 32,
    max_batch: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """An unbiased estimate of `log_prob`, in two passes a run; exact where one pass suffices.

    Args:
        model: The model.
        x: Values. Shape ``(batch, vars)``.
        query: What is asked; all that is not given by default.
        given: What is known; nothing by default.
        steps: The runs that a path is cut into, of nearly equal length. A path of no more steps is
            walked whole.
        max_batch: Rows of a pass; `rows_at_once` of the model by default.
        generator: The source of randomness.

    Returns:
        Shape ``(batch,)``.
    """
    check_count("steps", steps)
    x, query, given = checked_question(model, x, query, given)
    if model.is_one_pass:
        return log_prob(
            model, x, query=query, given=given, max_batch=max_batch, generator=generator
        )
    rank = model.protocol.rank(query, generator=generator)
    path, num_asked = path_lists(query, rank)

    def log_probs(row: Tensor, step: Tensor, targets: Tensor) -> Tensor:
        edges = row, step, targets
        return model.at_steps(x, query, given, rank, edges, max_batch=max_batch).double()

    bounds = (num_asked[:, None] * torch.arange(steps + 1, device=x.device)) // steps
    row, run = (bounds.diff() > 0).nonzero(as_tuple=True)
    first, length = bounds[row, run], bounds.diff()[row, run]
    place = torch.arange(int(length.max()) if len(length) else 0, device=x.device)
    inside = place < length[:, None]  # (runs, longest run)
    variables = path[row[:, None], torch.where(inside, first[:, None] + place, first[:, None])]
    guessed = log_probs(row, first, variables)
    drawn = (uniform(length.shape, device=x.device, generator=generator) * length).long()
    later = drawn.nonzero()[:, 0]  # the first step of a run is not a guess
    guess = guessed[later, drawn[later]]
    asked = variables[later, drawn[later], None]
    error = log_probs(row[later], (first + drawn)[later], asked)[:, 0] - guess
    total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    total.index_add_(0, row, guessed.masked_fill(~inside, 0).sum(dim=1))
    return total.index_add_(0, row[later], error * length[later])
