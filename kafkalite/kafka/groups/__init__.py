"""Consumer groups: a pure state machine per group (`group`), its offsets (`offsets`), the shell (`coordinator`)."""
