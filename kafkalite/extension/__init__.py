"""Requests for which Kafka has no API, or a poorer one; they travel as one API on the Kafka listener."""

#: In a range that no Apache Kafka release uses.
API_KEY = 20_000
#: Of a request. A reassignment of 50,000 partitions with names of usual length fits.
MAX_BODY_BYTES = 8 * 2**20
