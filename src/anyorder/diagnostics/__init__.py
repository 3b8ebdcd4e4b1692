"""How far a model agrees with itself, and with the data: gaps in nats, and calibration."""
