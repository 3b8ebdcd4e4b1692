"""Images: pixels as variables; files, public sets, model, answers."""
