"""Share groups (KIP-932): the shell around `decisions.share`."""
