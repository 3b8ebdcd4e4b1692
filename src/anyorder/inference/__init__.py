"""Inference: likelihoods, samples and conditionals for any (query, given)."""
