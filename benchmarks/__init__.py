"""Benchmarks: speed, memory and likelihoods, against named baselines and rivals in the same run."""
