"""How topics are created and deleted."""

from kafkalite.config.keys import INT_MAX, SHORT_MAX, area, setting


@area
class TopicCreationSettings:
    """How topics are created and deleted."""

    auto_create_topics_enable: bool = setting(True, "whether a topic is created when a client first requests it")
    num_partitions: int = setting(1, "default number of partitions of a new topic", low=1, high=INT_MAX)
    default_replication_factor: int = setting(1, "default number of replicas of a new topic", low=1, high=INT_MAX)
    auto_create_topics_replication_factor: int = setting(
        0,
        "number of replicas of a topic that is created because a client uses it; 0: one on each of up to three live brokers, and at least"
        " default.replication.factor",
        low=0,
        high=SHORT_MAX,
    )
    delete_topic_enable: bool = setting(True, "whether topics may be deleted")
    max_partitions_per_topic: int = setting(100_000, "maximum number of partitions of a topic", low=1, high=INT_MAX)
