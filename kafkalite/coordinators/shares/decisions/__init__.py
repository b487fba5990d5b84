"""Share groups without effects: which member holds which record of a partition, and until when."""
