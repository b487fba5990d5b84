"""Topics whose deletion this node has heard of. In memory.

A topic that the metadata lacks may have vanished from ZooKeeper by mistake, and can come back (ADR 19). What belongs to it is
forgotten only if its deletion was requested: the controller says so to the brokers that are alive then.
"""

from __future__ import annotations

from kafkalite.model import NO_TOPIC_ID, TopicId

#: Deletions that are remembered; beyond it the oldest are dropped, and what belongs to those topics stays.
MAX_DELETED = 10_000


class DeletedTopics:
    """See the module."""

    def __init__(self) -> None:
        self._ids: dict[TopicId, None] = {}
        #: The last that this node has heard of a topic of this name is its deletion.
        self._names: dict[str, None] = {}

    def add(self, name: str, topic_id: TopicId) -> None:
        """The controller has reported the deletion. NO_TOPIC_ID: this node does not know which topic of this name it was."""
        self._names[name] = None
        if len(self._names) > MAX_DELETED:
            del self._names[next(iter(self._names))]
        self.add_id(topic_id)

    def add_id(self, topic_id: TopicId) -> None:
        """The topic of this id was deleted; another one may have its name by now."""
        if topic_id != NO_TOPIC_ID:
            self._ids[topic_id] = None
        if len(self._ids) > MAX_DELETED:
            del self._ids[next(iter(self._ids))]

    def is_there(self, name: str, topic_id: TopicId) -> None:
        """The controller has named this topic: it is not deleted, or it was restored."""
        self._names.pop(name, None)
        self._ids.pop(topic_id, None)

    def heard_everything(self) -> None:
        """The controller has sent all that there is: this node may have missed topics that came and vanished before."""
        self._names.clear()

    def __contains__(self, topic: tuple[str, TopicId]) -> bool:
        """Whether the topic of this name and id was deleted, as far as this node has heard."""
        name, topic_id = topic
        return self.has_id(topic_id) or name in self._names

    def has_id(self, topic_id: TopicId) -> bool:
        """Whether the topic of this id was deleted, whatever its name was."""
        return topic_id in self._ids
