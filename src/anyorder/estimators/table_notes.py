"""What `model.json` notes of the columns of a table, read and proved once, when it is loaded.

The checksum of a file tells an accident, not a change that was meant. Columns that are read back,
say what they are, and turn codes into values and back, do so too when they are asked.
"""

from typing import Any

import torch

from anyorder.data.number_forms import SIGNS
from anyorder.data.table import TableSchema
from anyorder.errors import SchemaError
from anyorder.variables import Schema

SPREAD = (-3.0, -1.0, 0.0, 1.0, 3.0)
"""Normal scores that are turned into values."""


def read_table_notes(description: Any, schema: Schema) -> TableSchema:
    """The columns of a model, or an error of whatever kind if they are not what was saved.

    Args:
        description: Of the columns.
        schema: The variables of the model, which the columns must have.
    """
    table = TableSchema.from_description(description)
    if table.schema.to_json() != schema.to_json():
        raise SchemaError("its columns are not those of its network")
    names = [column.name for column in (*table.query, *table.context)]
    names += [column.name for column in table.ignored]
    if sorted(names) != sorted(table.layout):
        raise SchemaError("its columns are not those of its layout")
    if not {*table.decimals.values()} <= {*SIGNS}:
        raise SchemaError("its decimals have other signs than points and commas")
    table.summary()
    codes = torch.zeros(len(SPREAD), len(schema))
    for place, variable in enumerate(schema):
        if variable.kind == "continuous":
            codes[:, place] = torch.tensor(SPREAD)
    frame = table.decode(codes)
    x, _ = table.encode(frame)
    if not x.isfinite().all():
        raise SchemaError("its values are no numbers")
    table.log_density_factors(frame)
    return table
