"""Groups: their rules (`decisions`, a room per protocol), their records (`records`), the shells around both, and `coordinator`, which has them all."""
