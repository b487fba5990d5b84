"""Other people's own test suites, run against nodes of ours: `make suites`."""
