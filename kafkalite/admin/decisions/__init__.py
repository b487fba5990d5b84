"""Decisions without effects: nothing here imports a clock, a network, a disk or a task (`make imports`)."""
