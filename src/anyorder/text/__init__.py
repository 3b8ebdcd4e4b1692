"""Text: chunks of characters; files, model, answers."""
