"""Results for the record, and the tables of the documents that are made from them."""
