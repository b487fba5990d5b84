"""The workloads of a soak: each is a thread, and compares in the end its own records with those in the topics.

Run by load.py with an interpreter that has confluent-kafka.
"""
