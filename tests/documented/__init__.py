"""Commands in the documents are executed from the pages: `python -m tests.documented [PAGE…]`, `make docs-commands`.

A fence of the language `console` is a session (`$ command`, then what it prints; `[exit 2]` where it is not 0), one of the language
`sh` a script. Comments in the page say what a reader does not see (tests/documented/pages.py).
"""
