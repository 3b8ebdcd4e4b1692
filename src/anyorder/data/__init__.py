"""Raw files in, tensors and a schema out: one module a domain."""
