"""The same answers from many processes, on an engine that others maintain."""
