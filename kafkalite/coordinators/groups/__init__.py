"""Consumer groups: a pure state machine per group (`group`; what it takes and gives: `group_events`), its offsets (`offsets`), the shell (`coordinator`)."""
