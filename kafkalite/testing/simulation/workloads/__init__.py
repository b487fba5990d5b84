"""The clients of a simulated cluster: a file per kind."""
