"""Group APIs, a file per protocol of groups. What is common to all of them is in `classic`."""
