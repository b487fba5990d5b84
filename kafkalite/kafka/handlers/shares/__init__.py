"""APIs of share groups' records: ShareFetch, ShareAcknowledge, and the state of share partitions."""
