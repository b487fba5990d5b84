"""`python -m kafkalite_cli`."""

from kafkalite_cli.main import main

main()
