"""Training: objectives and one loop, on one process or many, that can be resumed."""
