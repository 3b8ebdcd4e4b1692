"""`anyorder demo`: what one model can do, in minutes, with nothing but what packages carry."""
