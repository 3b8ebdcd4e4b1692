"""Where the atoms of continuous variables are: which values are atoms, and which of them.

An atom is a value that a continuous variable takes with positive probability: a zero, a count, a
rounded reading. Values are compared bit by bit, as float32: what is written into `x` as an atom is
read as one.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from anyorder.variables import Variable


class AtomTable(nn.Module):
    """The atoms of some variables, in one sorted list.

    Args:
        variables: Continuous; those without atoms have none here.

    Example:
        >>> rain = Variable.continuous("rain", atoms=(0.0, 2.5))
        >>> table = AtomTable([Variable.continuous("wind"), rain])
        >>> table.find(torch.tensor([0, 1, 1, 1]), torch.tensor([0.0, 0.0, 1.0, 2.5]))
        tensor([-1,  0, -1,  1])
    """

    values: Tensor
    first: Tensor
    keys: Tensor

    def __init__(self, variables: Sequence[Variable]) -> None:
        super().__init__()
        sizes = torch.tensor([len(variable.atoms) for variable in variables])
        atoms = [atom for variable in variables for atom in variable.atoms]
        values = torch.tensor(atoms, dtype=torch.float32)
        owners = torch.arange(len(variables)).repeat_interleave(sizes)
        self.register_buffer("values", values, persistent=False)
        self.register_buffer("first", sizes.cumsum(0) - sizes, persistent=False)
        self.register_buffer("keys", _keys(owners, values), persistent=False)

    def __len__(self) -> int:
        return len(self.values)

    def find(self, variables: Tensor, values: Tensor) -> Tensor:
        """Which atom of its variable each value is, -1 for none. Shape of `values`."""
        place = self.place(variables, values)
        return torch.where(place < 0, place, place - self.first[variables])

    def place(self, variables: Tensor, values: Tensor) -> Tensor:
        """The place of each value in the list of all atoms, -1 for values that are none."""
        if not len(self.values):
            return torch.full(values.shape, -1, device=values.device)
        wanted = _keys(variables.expand_as(values), values)
        place = torch.searchsorted(self.keys, wanted).clamp(max=len(self.keys) - 1)
        return place.masked_fill(self.keys[place] != wanted, -1)


def _keys(variables: Tensor, values: Tensor) -> Tensor:
    """One whole number for a variable and a float32, in the order of both."""
    bits = (values.float() + 0.0).contiguous().view(torch.int32).long()  # + 0: no negative zero
    ordered = torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    return (variables.long() << 33) + ordered
