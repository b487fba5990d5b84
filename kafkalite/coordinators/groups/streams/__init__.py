"""Streams groups (KIP-1071): the shell around `decisions.streams`."""
