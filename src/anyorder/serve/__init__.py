"""The HTTP server: one model behind an API and one page."""
