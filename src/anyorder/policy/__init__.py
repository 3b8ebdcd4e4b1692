"""Policies: from what a robot sees, and what its operator has decided, to what it does."""
