"""The queries over HTTP, and one page."""
