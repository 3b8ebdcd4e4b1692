"""Tables: columns of mixed types with missing values; files, schema, model, answers."""
