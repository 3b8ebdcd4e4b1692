"""The command line: one function for each command, its arguments are the flags."""
