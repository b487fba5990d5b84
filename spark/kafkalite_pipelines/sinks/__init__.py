"""Tables and topics as sinks: a file per kind. `sink` is what a batch needs of each."""
