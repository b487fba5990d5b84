"""A group of many librdkafka consumers in one process, with commands on stdin; needs only confluent-kafka.

A line of JSON each way: what to do, and an object of arguments. `make`: create a topic. `start`: this number of consumers joins. `join`: one more. `leave`: one closes. Each is answered
when every partition has exactly one owner and each consumer has some, with the seconds that it took. `wait`: the same without a change, with
the seconds since the time given (for a member in another process that was killed). `end`: close all.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

_DEADLINE_S = 300.0


class Group:
    def __init__(self, bootstrap: str, topic: str, group: str, protocol: str, session_ms: int) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        if protocol == "classic":
            self._settings |= {"session.timeout.ms": session_ms, "heartbeat.interval.ms": 1_000}
        self._topic = topic
        self._members: list[Consumer] = []

    def join(self) -> None:
        member = Consumer(self._settings)
        member.subscribe([self._topic])
        self._members.append(member)

    def leave(self) -> None:
        self._members.pop().close()

    def settled(self, partitions: int, elsewhere: int, since: float) -> float:
        """Seconds from `since` until every partition has one owner. `elsewhere`: the most that another process has, if it
        has some. Raises TimeoutError."""
        while time.time() - since < _DEADLINE_S:
            for member in self._members:
                member.poll(0)
            owned = [[each.partition for each in member.assignment()] for member in self._members]
            flat = [partition for each in owned for partition in each]
            missing = partitions - len(flat)
            is_complete = 0 < missing <= elsewhere if elsewhere else not missing
            if is_complete and len(flat) == len(set(flat)) and all(owned):
                return time.time() - since
            time.sleep(0.05)  # a loop without a pause takes the core that the nodes need
        raise TimeoutError(f"the group is not stable: {len(self._members)} members")

    def end(self) -> None:
        for member in self._members:
            member.close()


def main() -> None:
    bootstrap, topic, group, protocol, session_ms = sys.argv[1:6]
    members = Group(bootstrap, topic, group, protocol, int(session_ms))
    partitions = 0
    for line in sys.stdin:
        do, *given = json.loads(line)
        asked = given[0] if given else {}
        since = asked.get("since", time.time())
        match do:
            case "make":
                partitions = asked["partitions"]
                admin = AdminClient({"bootstrap.servers": bootstrap})
                admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result()
            case "start":
                for _ in range(asked["members"]):
                    members.join()
            case "join":
                members.join()
            case "leave":
                members.leave()
            case "end":
                members.end()
        took = 0.0
        if do in ("start", "join", "leave", "wait"):
            took = members.settled(partitions, asked.get("elsewhere", 0), since)
        print(json.dumps(took), flush=True)
        if do == "end":
            return


if __name__ == "__main__":
    main()
