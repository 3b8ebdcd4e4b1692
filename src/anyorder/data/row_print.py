"""Whether rows are those that a model was trained on, told without keeping any of them."""

from dataclasses import dataclass
from hashlib import blake2b

from torch import Tensor

SEEN = "These rows were trained on: expect better numbers than on new ones."
"""What to say of them."""

BYTES = 8
"""Of the hash of a row, and of their sum."""


@dataclass
class RowPrint:
    """A fingerprint of encoded rows: the same for the same rows, in any order and file format.

    It is the sum of hashes, so rows can come in parts. A part of the rows has another print.

    Example:
        >>> import torch
        >>> x, nothing = torch.eye(3), torch.zeros(3, 3, dtype=torch.bool)
        >>> one, other = RowPrint(), RowPrint()
        >>> one.add(x, nothing)
        >>> other.add(x[1:], nothing[1:]), one == other
        (None, False)
        >>> other.add(x[:1], nothing[:1]), one == other
        (None, True)
    """

    rows: int = 0
    total: int = 0

    def add(self, x: Tensor, missing: Tensor) -> None:
        """Takes in some more rows: codes ``(rows, columns)`` and gaps ``(rows, vars)``."""
        self.rows += len(x)
        for code, gone in zip(x.cpu().numpy(), missing.cpu().numpy(), strict=True):
            digest = blake2b(code.tobytes() + gone.tobytes(), digest_size=BYTES).digest()
            self.total = (self.total + int.from_bytes(digest, "big")) % 2 ** (8 * BYTES)

    def to_json(self) -> dict[str, int | str]:
        """Plain values, for the notes of a model."""
        return {"rows": self.rows, "print": f"{self.total:0{2 * BYTES}x}"}
