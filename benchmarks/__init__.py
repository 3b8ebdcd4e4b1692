"""Speed and memory as ratios, each against a named rival in the same run."""
