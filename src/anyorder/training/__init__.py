"""Training: one plain loop, on one processor or many, that can be stopped and goes on."""
