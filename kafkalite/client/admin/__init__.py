"""Administrators' requests as a client sends them: a file per subject."""
