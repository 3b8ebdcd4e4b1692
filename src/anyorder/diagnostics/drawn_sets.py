"""The random sets that diagnostics ask about, and the paths along which they are walked."""

import torch
from torch import Tensor

from anyorder.model import AnyOrderModel, Factors
from anyorder.random_sets import subsets, uniform


def several(have: Tensor, *, least: int, generator: torch.Generator | None) -> Tensor:
    """A random set of what each row has, each size from `least` to all of it as often.

    Args:
        have: What the rows have, `least` variables or more. Shape ``(rows, vars)``.
        least: The smallest size.
        generator: The source of randomness.
    """
    available = have.sum(dim=1)
    share = uniform(available.shape, device=have.device, generator=generator)
    sizes = least + (share * (available - least + 1)).long()
    return subsets(sizes, have, generator=generator)


def one_of(members: Tensor, *, generator: torch.Generator | None) -> Tensor:
    """A random member of each set, none of them empty. Shape ``(rows,)``."""
    keys = uniform(members.shape, device=members.device, generator=generator)
    return keys.masked_fill(~members, -1.0).argmax(dim=1)


def last_of(members: Tensor, rank: Tensor) -> Tensor:
    """The last variable of the path of each set. Shape ``(rows,)``."""
    return rank.masked_fill(~members, -1).argmax(dim=1)


def without(members: Tensor, variables: Tensor) -> Tensor:
    """Each set without one variable."""
    return members.scatter(1, variables[:, None], False)


def log_prob_along(model: AnyOrderModel, x: Tensor, *, query: Tensor, rank: Tensor) -> Tensor:
    """The log of p(x_query) along the paths that `rank` tells. Shape ``(rows,)``, float64."""
    return factors_along(model, x, query=query, rank=rank).totals(len(x))


def factors_along(model: AnyOrderModel, x: Tensor, *, query: Tensor, rank: Tensor) -> Factors:
    """The factors of p(x_query), nothing given, along the paths that `rank` tells."""
    return model.factors(x, query=query, given=torch.zeros_like(query), rank=rank)


def has_mass(model: AnyOrderModel, x: Tensor) -> Tensor:
    """Which values have a probability, not a density: levels and atoms. Shape ``(rows, vars)``."""
    columns = []
    for place, variable in enumerate(model.schema.variables[: model.num_variables]):
        atoms = torch.tensor(variable.atoms, dtype=torch.float32, device=x.device)
        is_level = torch.full((len(x),), variable.kind == "categorical", device=x.device)
        columns.append(is_level | torch.isin(x[:, place].float(), atoms))
    return torch.stack(columns, dim=1)
