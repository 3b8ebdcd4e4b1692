"""Nouns as JSON: a class name, and the arguments of its constructor.

A noun that is saved with a model (a law, a protocol, a network) keeps every argument of its
constructor in an attribute of the same name, so its description is read off the signature, and
building it again is one call. Nothing is ever unpickled or evaluated.
"""

import inspect
from typing import Any

from torch import Tensor

from anyorder.errors import CheckpointError, nearest
from anyorder.variables import Schema

PLAIN = (str, int, float, bool, type(None))


def describe(noun: object) -> dict[str, Any]:
    """The description of a noun: its class, and the arguments that build it again.

    A schema among the arguments is left out: it is saved once, beside the nouns.
    """
    names = inspect.signature(type(noun)).parameters
    arguments = {name: _plain(getattr(noun, name)) for name in names if name != "schema"}
    return {"type": type(noun).__name__, **arguments}


def build(description: dict[str, Any], *kinds: type[Any], schema: Schema | None = None) -> Any:
    """Builds the noun of a description: a subclass of one of `kinds`.

    Args:
        description: From `describe`.
        kinds: What it may be; what it is made of may be of these kinds too.
        schema: For nouns whose constructor takes one.
    """
    classes = {cls.__name__: cls for kind in kinds for cls in _family(kind)}
    try:
        name = description["type"]
        arguments = {
            key: _unplain(value, kinds, schema)
            for key, value in description.items()
            if key != "type"
        }
    except (TypeError, KeyError, AttributeError):
        raise CheckpointError(
            f"This does not describe a part of a model: {description!r}."
        ) from None
    if name not in classes:
        raise CheckpointError(
            f'The model needs a class "{name}" that is not known here.{nearest(name, classes)} '
            "Import the module that defines it first."
        )
    if "schema" in inspect.signature(classes[name]).parameters:
        arguments["schema"] = schema
    try:
        return classes[name](**arguments)
    except TypeError as error:
        raise CheckpointError(f"The description of {name} does not fit it: {error}.") from error


def _plain(value: Any) -> Any:
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return describe(value)


def _unplain(value: Any, kinds: tuple[type, ...], schema: Schema | None) -> Any:
    if isinstance(value, dict):
        return build(value, *kinds, schema=schema)
    if isinstance(value, list):
        return [_unplain(item, kinds, schema) for item in value]
    return value


def _family(kind: type) -> list[type]:
    children: list[type] = kind.__subclasses__()
    return [kind, *(cls for child in children for cls in _family(child))]
