"""`python -m kafkalite_cli.docs`: writes the generated documents (`make docs`)."""

from kafkalite_cli.docs.pages import main

main()
