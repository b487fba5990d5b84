"""Verbs that write to ZooKeeper: how they reach it, and its ACLs."""
