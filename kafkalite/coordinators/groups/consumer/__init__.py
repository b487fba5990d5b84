"""Consumer groups (KIP-848): the shell around `decisions.consumer`."""
