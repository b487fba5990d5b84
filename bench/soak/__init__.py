"""Hours of real processes under other people's clients (librdkafka, Kafka's Java client) and every fault this machine can make.

`python -m bench.soak` runs the cluster and the faults; `load.py` runs in an interpreter that has confluent-kafka, with the
workloads and the counting; `checks.py` compares what was acknowledged with what is there.
"""
