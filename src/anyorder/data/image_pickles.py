"""An array out of a pickle, without running what the pickle says.

The public archives of CIFAR-10 and ImageNet32 hold pickles, and opening a pickle can run any code.
Here the few names that a pickled array needs are given stand-ins, which keep what they are told and
do nothing; every other name is refused. The array is then made of the bytes that were kept.
"""

import io
import math
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyorder.errors import SchemaError


def pickled_bytes(raw: bytes, key: str, *, file: str) -> NDArray[np.uint8]:
    """The array of bytes that a pickled dict holds under `key`.

    Args:
        raw: The pickle, of Python 2 or 3.
        key: Of the dict.
        file: What to call it in an error.
    """
    try:
        found = _Reader(io.BytesIO(raw), encoding="bytes").load()
    except SchemaError as error:
        raise SchemaError(f'"{file}" {error}') from None
    except Exception as error:  # a pickle that is cut off or altered can fail in any way
        raise SchemaError(
            f'"{file}" is cut off or is not a pickle ({error}). Put a complete copy there.'
        ) from error
    told = found.get(key, found.get(key.encode())) if isinstance(found, dict) else None
    array = _array(told) if isinstance(told, _Told) else None
    if array is None:
        raise SchemaError(f'"{file}" must hold a dict with an array of bytes called "{key}".')
    return array


class _Told:
    """Stands in for an array, and for its type: keeps what a pickle says about it."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = ()

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes for Python 2."""
    del encoding  # it is always this one
    return text.encode("latin1")


STAND_INS = {
    ("numpy", "ndarray"): _Told,
    ("numpy", "dtype"): _Told,
    ("numpy.core.multiarray", "_reconstruct"): _Told,
    ("numpy._core.multiarray", "_reconstruct"): _Told,
    ("_codecs", "encode"): _latin1,
}
"""All that a pickled array may name."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """A stand-in for what a pickle names."""
        if (module, name) not in STAND_INS:
            raise SchemaError(
                f"is a pickle that asks for {module}.{name}, and is not opened: only arrays are "
                "read, because a pickle can run any code. Put the public file there."
            )
        return STAND_INS[module, name]


def _array(told: _Told) -> NDArray[np.uint8] | None:
    """The array that was told about, or None where it is not one of bytes."""
    try:
        _, shape, kind, is_fortran, data = told.state
        if kind.arguments[0] not in ("u1", b"u1") or math.prod(shape) != len(data):
            return None
        order: Any = "F" if is_fortran else "C"
        return np.frombuffer(data, dtype=np.uint8).reshape(shape, order=order)
    except (TypeError, ValueError, AttributeError, IndexError):
        return None
