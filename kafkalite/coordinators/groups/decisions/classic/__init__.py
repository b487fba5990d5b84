"""The classic group protocol as a state machine (KIP-62, KIP-345). Pure."""
