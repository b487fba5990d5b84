"""One broker in memory, for tests of the Kafka listener alone."""
