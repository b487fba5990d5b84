"""Apache Kafka's own integration tests, unchanged, against nodes of ours.

They start brokers inside their JVM. Classes of ours in java/ have the same names and come first on the class path; they ask
`tests.suites.cluster_control` for clusters of real processes instead (docs/adr/0071).
"""
