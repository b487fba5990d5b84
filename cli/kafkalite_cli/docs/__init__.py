"""The generated documents: a file per kind of page. `pages` writes them all."""
