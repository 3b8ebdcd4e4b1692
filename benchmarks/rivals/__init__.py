"""Other table models, each a worker that runs in its own environment.

A worker reads a task folder and writes its answers there; see `task`. It may import numpy, its own
library, and nothing of anyorder: `python -m benchmarks.rivals.NAME FOLDER`.
"""
