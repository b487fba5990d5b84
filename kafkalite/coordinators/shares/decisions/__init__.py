"""Share groups without effects: who has which record of a partition, and until when."""
