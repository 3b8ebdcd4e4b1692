"""Heads: from features, and a prior's message, to the distribution p(x_i | x_e)."""
