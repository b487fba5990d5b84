"""From a message's table to the source of the function that reads or writes one version of it."""
