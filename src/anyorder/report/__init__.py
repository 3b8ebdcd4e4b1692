"""One self-contained page about a fitted model: what it learnt, and how far to trust it."""
