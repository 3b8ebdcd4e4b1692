"""`python -m anyorder` is the command line."""

from anyorder.cli import main

main()
