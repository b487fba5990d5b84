"""Transactions: pure transitions (`state`), the markers' way to partition leaders (`markers`), the shell (`coordinator`)."""
