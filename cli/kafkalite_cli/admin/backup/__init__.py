"""`kafkalite admin backup`: topics and offsets as files, and back (ADR 42)."""
