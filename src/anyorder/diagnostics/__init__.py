"""Diagnostics: consistency gaps in nats, calibration, and evaluation with standard errors."""
