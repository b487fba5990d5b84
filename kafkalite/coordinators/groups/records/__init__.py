"""The records of groups in `__consumer_offsets`, in Kafka's own formats: a file per protocol; `common` knows them all."""
