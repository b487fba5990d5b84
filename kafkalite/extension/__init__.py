"""Requests for which Kafka has no API, or a poorer one; they travel as one API on the Kafka listener."""

#: Of a request. A reassignment of 50,000 partitions with names of usual length fits.
MAX_BODY_BYTES = 8 * 2**20
#: Elements of all arrays and maps in the body of a request that a user without any right may send: decoding them takes the loop 20 to 60 ms,
#: and 8 MiB of elements took it two seconds.
MAX_ELEMENTS = 100_000
