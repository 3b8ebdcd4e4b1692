"""Robots: demonstrations, policies p(action dimensions | other dimensions, state), episodes."""
