"""Variables and schemas, and the names of tensors used everywhere.

Every domain becomes one tensor `x (batch, vars)` at its border: a column of a table, a character of
a text, a pixel of an image and a joint of a robot are all *variables*. A categorical variable is
stored as the index of its level, a continuous one as its value. `x` never holds NaN: a missing
entry carries a legal filler and is marked in a boolean tensor `missing (batch, vars)`.

Tensors, by name:

    x         (batch, vars)   values
    observed  (batch, vars)   boolean, the input set e of the network
    given     (batch, vars)   boolean, the evidence e of a query p(x_u | x_e)
    query     (batch, vars)   boolean, the queried set u
    missing   (batch, vars)   boolean, absent in the data
    rank      (vars,)         position of each variable in the canonical order
"""

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from anyorder.errors import SchemaError, nearest

Level = str | int | float | bool
Kind = Literal["categorical", "continuous"]

FORMAT = 1
"""Version of the JSON form; raised when an old file could be misread."""


@dataclass(frozen=True)
class Variable:
    """Name and type of one variable.

    Args:
        name: Name of the variable in queries: `query` and `given` may be lists of names.
        kind: "categorical" (one of `levels`) or "continuous" (a real number).
        levels: Values of a categorical variable, in the order of their codes.
        context: True for a variable that is always given and never queried, such as the state of a
            robot. It is outside N, the query law and the canonical order.
        atoms: Values that a continuous variable takes with positive probability, ascending: the
            zeros of a rainfall, the 40 of the hours worked. They have a probability, not a density.

    Example:
        >>> Variable.categorical("job", ["nurse", "clerk"]).num_levels
        2
    """

    name: str
    kind: Kind
    levels: tuple[Level, ...] | None = None
    context: bool = False
    atoms: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SchemaError(f"A variable's `name` must be a non-empty string; got {self.name!r}.")
        if self.kind not in ("categorical", "continuous"):
            raise SchemaError(
                f'`kind` of "{self.name}" must be "categorical" or "continuous"; got {self.kind!r}.'
            )
        if self.kind == "continuous" and self.levels is not None:
            raise SchemaError(f'"{self.name}" is continuous and must not have `levels`.')
        if self.kind == "categorical":
            object.__setattr__(self, "levels", _checked_levels(self.name, self.levels))
        if not isinstance(self.context, bool):
            raise SchemaError(
                f'`context` of "{self.name}" must be True or False; got {self.context!r}.'
            )
        object.__setattr__(self, "atoms", _checked_atoms(self.name, self.atoms))
        if self.kind == "categorical" and self.atoms:
            raise SchemaError(f'"{self.name}" is categorical and must not have `atoms`.')

    @classmethod
    def categorical(
        cls, name: str, levels: Iterable[Level], *, context: bool = False
    ) -> "Variable":
        """Returns a variable that takes one of `levels`."""
        return cls(name, "categorical", levels, context)  # type: ignore[arg-type]

    @classmethod
    def continuous(
        cls, name: str, *, atoms: Iterable[float] = (), context: bool = False
    ) -> "Variable":
        """Returns a real variable that takes the values `atoms` with positive probability."""
        return cls(name, "continuous", None, context, atoms)  # type: ignore[arg-type]

    @property
    def num_levels(self) -> int:
        """Number of levels of a categorical variable; 0 for a continuous one."""
        return len(self.levels or ())


@dataclass(frozen=True)
class Schema:
    """Variables of a model, in the order of the columns of `x`.

    Args:
        variables: Variables with different names; at least one.

    Example:
        >>> job = Variable.categorical("job", ["nurse", "clerk"])
        >>> schema = Schema((Variable.continuous("age"), job))
        >>> schema.index("job"), schema.num_variables
        (1, 2)
        >>> Schema.from_json(schema.to_json()) == schema
        True
    """

    variables: tuple[Variable, ...]

    def __post_init__(self) -> None:
        if isinstance(self.variables, Variable) or not isinstance(self.variables, Iterable):
            raise SchemaError(
                f"A schema must be given a list of variables; got {self.variables!r}."
            )
        object.__setattr__(self, "variables", tuple(self.variables))
        if not self.variables:
            raise SchemaError("A schema must hold at least one variable; got none.")
        for variable in self.variables:
            if not isinstance(variable, Variable):
                raise SchemaError(f"A schema must hold `Variable`s only; got {variable!r}.")
        name, count = Counter(self.names).most_common(1)[0]
        if count > 1:
            raise SchemaError(
                f'Variable names must differ; "{name}" occurs {count} times. Rename it.'
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names, in the order of the columns of `x`."""
        return tuple(variable.name for variable in self.variables)

    @property
    def num_variables(self) -> int:
        """Number N of variables that can be queried. Context variables do not count."""
        return sum(not variable.context for variable in self.variables)

    def index(self, name: str) -> int:
        """Returns the column of `x` that holds the variable `name`."""
        if not isinstance(name, str) or name not in self.names:
            raise SchemaError(f'There is no variable "{name}".{nearest(name, self.names)}')
        return self.names.index(name)

    def __getitem__(self, name: str) -> Variable:
        return self.variables[self.index(name)]

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[Variable]:
        return iter(self.variables)

    def __len__(self) -> int:
        return len(self.variables)

    def to_json(self) -> str:
        """Returns the schema as JSON, which `from_json` reads back to an equal schema."""
        # Atoms only if there are any, so that the JSON of a schema without does not change.
        entries = [{k: v for k, v in vars(one).items() if v or k != "atoms"} for one in self]
        return json.dumps({"format": FORMAT, "variables": entries}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Schema":
        """Returns the schema that `to_json` wrote."""
        try:
            document = json.loads(text)
            if document["format"] != FORMAT:
                raise SchemaError(
                    f"The schema has format {document['format']!r}; this version reads {FORMAT}."
                )
            return cls(tuple(Variable(**entry) for entry in document["variables"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if isinstance(error, SchemaError):
                raise
            raise SchemaError(f"This is not a schema written by anyorder ({error!r}).") from error


@cache
def _range_levels(levels: range) -> tuple[int, ...]:
    """Returns the numbers of a range; cached, because all pixels of an image share it."""
    return tuple(levels)


def _checked_levels(name: str, levels: Iterable[Level] | None) -> tuple[Level, ...]:
    if isinstance(levels, range) and levels:  # finite, and all differ
        return _range_levels(levels)
    ordered = isinstance(levels, Iterable) and not isinstance(levels, str | bytes | set | dict)
    if levels is not None and not ordered:
        raise SchemaError(f'The levels of "{name}" must be a list, in order; got {levels!r}.')
    # Scalars of numpy and torch become plain Python values, which JSON gives back.
    plain = (v.item() if hasattr(v, "item") else v for v in (() if levels is None else levels))
    found = tuple(plain)
    if not found:
        raise SchemaError(f'"{name}" is categorical and must have at least one level; got none.')
    for level in found:
        if (
            not isinstance(level, str | int | float)
            or level != level
            or level in (math.inf, -math.inf)
        ):
            raise SchemaError(
                f'The levels of "{name}" must be strings, booleans or finite numbers; '
                f"got {level!r}."
            )
    # 1, 1.0 and True are equal to Python, and JSON keeps them apart: one of them would be lost.
    level, count = Counter(found).most_common(1)[0]
    if count > 1:
        raise SchemaError(f'The levels of "{name}" must differ; {level!r} occurs {count} times.')
    return found


def _checked_atoms(name: str, atoms: Iterable[float]) -> tuple[float, ...]:
    try:
        if isinstance(atoms, str | bytes | set | dict):
            raise TypeError
        found = tuple(float(atom) for atom in atoms)
    except (TypeError, ValueError):
        raise SchemaError(
            f'The atoms of "{name}" must be a list of numbers; got {atoms!r}.'
        ) from None
    for atom in found:
        if not math.isfinite(atom):
            raise SchemaError(f'The atoms of "{name}" must be finite; got {atom}.')
    for low, high in itertools.pairwise(found):
        if low >= high:
            raise SchemaError(
                f'The atoms of "{name}" must ascend and differ; {high} follows {low}. Sort them.'
            )
    return found
