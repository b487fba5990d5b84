"""Share groups (KIP-932): the state of each shared partition and where it is kept."""
