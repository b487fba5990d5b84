"""`kafkalite produce`, `consume` and `perf`: records as lines, positions in a topic."""
