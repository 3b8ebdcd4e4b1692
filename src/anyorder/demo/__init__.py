"""Demo of text, table and image models, in minutes, with data that packages ship."""
