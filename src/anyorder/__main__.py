"""`python -m anyorder` is the command line."""

from anyorder.cli.app import main

main()
