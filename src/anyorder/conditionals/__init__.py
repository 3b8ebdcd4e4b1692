"""Conditionals: from the features of an edge to p(x_i | x_e)."""
