"""Other models of tables, each a worker that runs in an environment of its own.

A worker reads a task folder and writes its answers beside it; see `task`. It may import numpy, its
own library, and nothing of anyorder: `python -m benchmarks.rivals.NAME FOLDER`.
"""
