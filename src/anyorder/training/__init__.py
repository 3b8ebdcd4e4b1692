"""Training: the objectives and one resumable loop, for one process or many."""
