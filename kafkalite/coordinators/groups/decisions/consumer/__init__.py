"""Rules of consumer groups (KIP-848): state, heartbeats, assignors, members of the classic protocol. Pure."""
