"""Rules of streams groups (KIP-1071): values, topology, task assignment, heartbeats. Pure."""
