"""Priors: models fitted in seconds that answer p(x_i | x_e) in closed form."""
