"""`kafkalite pipeline`: its verbs, what they print while a pipeline runs, and the targets of `backfill` and `replay`."""
