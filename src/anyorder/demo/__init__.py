"""The demo: what one model can do, in minutes, with data that packages carry."""
