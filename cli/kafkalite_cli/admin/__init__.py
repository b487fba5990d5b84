"""`kafkalite admin`: a file per verb. `command` has the table of verbs, and the verbs about topics and health."""
