"""Rules of share groups (KIP-932): state, heartbeats, the assignor. Pure."""
