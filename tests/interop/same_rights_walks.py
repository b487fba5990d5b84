"""Random walks of a user whose rights come and go: what it began with a right, and goes on with after it was taken away."""

# ruff: noqa: FBT003 - the fields of a request by their positions
from __future__ import annotations

import asyncio
import random
from typing import Any

from kafkalite.protocol import wire

from .same_answers import Side, record_batch
from .same_requests import create_topic, member_uuid, produce_request, share_fetch, stable, streams_heartbeat
from .same_rights import USER, drawn_rights, give, hide, take_all, told


async def rights_that_change(s: Side) -> None:
    user = s.logins[USER].user
    group, transaction = f"g{s.tag}", f"x{s.tag}"
    names = {}
    for name in (f"t{s.tag}", f"t{s.tag}-2"):
        names[name] = (await create_topic(s, name, 2, records=3))[1]
    hidden, hidden_id = await hide(s)
    ids = {**names, hidden: hidden_id}
    r: Any  # the class of a request
    message: Any
    topics: list[Any]
    f, o, t = wire.FetchRequest, wire.OffsetCommitRequest, wire.TxnOffsetCommitRequest
    session, epoch = 0, 0
    who = (-1, -1)
    member, generation = "", -1
    share_epoch, beat_epoch, consumer_epoch = 0, 0, 0
    fetch_version = s.source.choice((7, 11, 12, 13, 16))
    share_member = member_uuid(2)
    s.alias(share_member, "member of shares")
    s.alias(member_uuid(1), "member of consumers")
    consumer_group, share_group = f"g{s.tag}-new", f"s{s.tag}"

    async def ask(message: Any, version: int, label: str) -> Any:
        return await s.ask(message, version, label, connection=USER)

    def some() -> list[str]:
        return s.source.sample(sorted(ids), s.source.randint(1, 3))

    await take_all(s, user)
    for step in range(24):
        what = s.source.choice(
            ("rights", "rights", "rights", "rights", "all", "none", "fetch", "fetch", "fetch", "fetch new", "produce", "producer", "transaction add",
             "transaction add", "transaction produce", "transaction offsets", "transaction commit", "end", "commit", "offsets", "join", "heartbeat",
             "metadata", "metadata all", "describe", "configs", "groups", "create", "delete records", "share beat", "share fetch", "share fetch",
             "consumer beat", "consumer regex", "consumer beat", "streams beat", "describe groups", "partitions"),
        )  # fmt: skip
        label = f"{step} {what}"
        asked = some()
        if what in ("rights", "all", "none"):
            await take_all(s, user)
            given = drawn_rights(random.Random(s.source.random()), s.tag, user)
            if what == "all":
                given = [
                    (kind, "*", 3, f"User:{user}", "*", 2, 3)
                    if kind != 4
                    else (4, "kafka-cluster", 3, f"User:{user}", "*", 2, 3)
                    for kind in (2, 3, 4, 5, 6, 7)
                ]
            elif what == "none":
                given = []
            await give(s, user, given)
            s.rights += f" | {step}: {told(given, s.tag)}"
        elif what in ("fetch", "fetch new"):
            if what == "fetch new":
                session, epoch = 0, 0
            wanted = asked if session == 0 or s.source.random() < 0.3 else []
            topics = [
                f.FetchTopic(
                    topic=name,
                    topic_id=ids[name],
                    partitions=[f.FetchPartition(0, -1, s.source.choice((0, 1)), -1, -1, 10_000)],
                )
                for name in wanted
            ]
            message = f(
                max_wait_ms=0, min_bytes=0, max_bytes=100_000, topics=topics, session_id=session, session_epoch=epoch
            )
            answer = await ask(message, fetch_version, label)
            if answer is None or answer.error_code:
                session, epoch = 0, 0
            elif answer.session_id:
                session, epoch = answer.session_id, epoch + 1
        elif what == "produce":
            name = asked[0]
            if name != hidden:
                await ask(
                    produce_request(name, ids[name], 0, record_batch(b"p%d" % step)),
                    s.source.choice((9, 12, 13)),
                    label,
                )
        elif what == "producer":
            answer = await ask(
                wire.InitProducerIdRequest(
                    s.source.choice((transaction, transaction, hidden + s.tag, None)), 60_000, -1, -1
                ),
                5,
                label,
            )
            if answer is not None and answer.error_code == 0:
                who = (answer.producer_id, answer.producer_epoch)
        elif what.startswith("transaction") and who[0] >= 0:
            if what == "transaction add":
                a = wire.AddPartitionsToTxnRequest
                topics = [a.AddPartitionsToTxnTopic(name, [0]) for name in asked if name != hidden]
                message = a(v3_and_below_transactional_id=transaction, v3_and_below_producer_id=who[0], v3_and_below_producer_epoch=who[1],
                            v3_and_below_topics=topics)  # fmt: skip
                await ask(message, s.source.choice((1, 3)), label)
            elif what == "transaction produce":
                name = f"t{s.tag}"
                batch = record_batch(
                    b"t", producer_id=who[0], producer_epoch=who[1], base_sequence=0, transactional=True
                )
                await ask(
                    produce_request(name, ids[name], 1, batch, s.source.choice((transaction, transaction, None))),
                    11,
                    label,
                )
            elif what == "transaction offsets":
                await ask(wire.AddOffsetsToTxnRequest(transaction, *who, group), 3, label)
            else:
                partitions = [t.TxnOffsetCommitRequestPartition(0, step, -1, "m")]
                topics = [t.TxnOffsetCommitRequestTopic(name=name, partitions=partitions) for name in asked]
                await ask(t(transaction, group, *who, -1, "", None, topics), 3, label)
        elif what == "end" and who[0] >= 0:
            answer = await ask(wire.EndTxnRequest(transaction, *who, s.source.random() < 0.5), 3, label)
            who = (-1, -1)
        elif what == "commit":
            topics = [
                o.OffsetCommitRequestTopic(
                    name=name, topic_id=ids[name], partitions=[o.OffsetCommitRequestPartition(0, step, -1, -1, "m")]
                )
                for name in asked
            ]
            await ask(
                o(s.source.choice((group, hidden + s.tag)), -1, "", None, -1, topics),
                s.source.choice((8, 9, 10)),
                label,
            )
        elif what == "offsets":
            r = wire.OffsetFetchRequest
            groups = [r.OffsetFetchRequestGroup(each, None, -1, None) for each in (group, hidden, "nope")]
            await ask(r(groups=groups), 9, label)
        elif what == "join":
            if not member:
                member, generation = await stable(s, group)
            j = wire.JoinGroupRequest
            await ask(
                j(
                    group,
                    30_000,
                    30_000,
                    member,
                    None,
                    "consumer",
                    [j.JoinGroupRequestProtocol("range", b"\x00\x01")],
                    None,
                ),
                9,
                label,
            )
            member = ""
        elif what == "heartbeat":
            await ask(
                wire.HeartbeatRequest(s.source.choice((group, hidden)), generation, member or "m", None), 4, label
            )
        elif what in ("metadata", "metadata all"):
            m = wire.MetadataRequest
            version = s.source.choice((1, 5, 8, 9, 10, 12, 13))
            if what == "metadata all":
                message = m(None, False, version in range(8, 11), True)
            elif version >= 12 and s.source.random() < 0.5:
                message = m(
                    [m.MetadataRequestTopic(topic_id=ids[name], name=None) for name in asked], False, False, True
                )
            else:
                message = m(
                    [m.MetadataRequestTopic(name=name) for name in (*asked, "nope")],
                    False,
                    version in range(8, 11),
                    True,
                )
            await ask(message, version, label)
        elif what == "describe":
            r = wire.DescribeTopicPartitionsRequest
            names_asked = [r.TopicRequest(name) for name in (*asked, "nope")] if s.source.random() < 0.6 else []
            await ask(r(names_asked, 1000), 0, label)
        elif what == "configs":
            k = wire.DescribeConfigsRequest
            keys = ["retention.ms"]
            resources = [k.DescribeConfigsResource(2, name, keys) for name in (*asked, "nope")]
            await ask(
                k(
                    [
                        *resources,
                        k.DescribeConfigsResource(32, group, ["share.auto.offset.reset"]),
                        k.DescribeConfigsResource(4, "1", ["num.partitions"]),
                    ],
                    False,
                    False,
                ),
                4,
                label,
            )
        elif what == "groups":
            await ask(wire.ListGroupsRequest([], []), 5, label)
        elif what == "describe groups":
            await ask(wire.DescribeGroupsRequest([group, hidden, "nope"], True), 6, label)
            await ask(wire.ConsumerGroupDescribeRequest([consumer_group], True), 1, label)
            await ask(wire.ShareGroupDescribeRequest([share_group], True), 1, label)
        elif what == "create":
            creation = wire.CreateTopicsRequest
            created = [creation.CreatableTopic(each, 1, 1, [], []) for each in (f"t{s.tag}-new", hidden, "shared")]
            await ask(creation(created, 5_000, s.source.random() < 0.5), 7, label)
        elif what == "partitions":
            p = wire.CreatePartitionsRequest
            await ask(p([p.CreatePartitionsTopic(name, 1, None) for name in (*asked, "nope")], 5_000, True), 3, label)
        elif what == "delete records":
            d = wire.DeleteRecordsRequest
            await ask(
                d([d.DeleteRecordsTopic(name, [d.DeleteRecordsPartition(1, 0)]) for name in (*asked, "nope")], 5_000),
                2,
                label,
            )
        elif what == "share beat":
            share_beat = wire.ShareGroupHeartbeatRequest(share_group, share_member, share_epoch, None, asked)
            answer = await s.ask(share_beat, 1, label, connection=USER, traced=False)
            s.note(label, None if answer is None else answer.error_code)
            if answer is not None and answer.error_code == 0:
                share_epoch = answer.member_epoch
        elif what == "share fetch" and share_epoch > 0:
            answer = await ask(
                share_fetch(share_group, share_member, 0, ids[asked[0]], max_wait_ms=0, min_bytes=0), 1, label
            )
        elif what in ("consumer beat", "consumer regex"):
            regex = s.source.choice((f"h{s.tag}.*", f"t{s.tag}.*", ".*")) if what == "consumer regex" else None
            beat = wire.ConsumerGroupHeartbeatRequest(
                consumer_group,
                member_uuid(1),
                consumer_epoch,
                None,
                None,
                30_000,
                None if regex else asked,
                regex,
                None,
                [],
            )
            answer = await s.ask(beat, 1, label, connection=USER, traced=False)
            s.note(label, None if answer is None else answer.error_code)
            if answer is not None and answer.error_code == 0:
                consumer_epoch = answer.member_epoch
        elif what == "streams beat":
            beat_epoch = 0
            await ask(
                streams_heartbeat(f"k{s.tag}", member_uuid(3), beat_epoch, asked[0], active=[], standby=[], warmup=[]),
                1,
                label,
            )
    await take_all(s, user)


async def subscriptions(s: Side) -> None:
    """Of which topics a member gets partitions, by name or by pattern, that has rights to some."""
    user = s.logins[USER].user
    names = {}
    for name in (f"t{s.tag}", f"t{s.tag}-2"):
        names[(await create_topic(s, name, 1))[1]] = name
    hidden, hidden_id = await hide(s)
    names[hidden_id] = hidden
    for number in range(3):
        await take_all(s, user)
        given = [
            *drawn_rights(random.Random(s.source.random()), s.tag, user),
            (3, "*", 3, f"User:{user}", "*", 3, 3),  # READ every group
        ]
        await give(s, user, list(dict.fromkeys(given)))
        s.rights += f" | {number}: {told(given, s.tag)}"
        regex = s.source.choice((None, ".*", f"[th]{s.tag}.*", f"h{s.tag}"))
        topics = None if regex else sorted(names.values())
        r = wire.ConsumerGroupHeartbeatRequest
        epoch, seen, unchanged = 0, "", 0
        for _ in range(60):
            owned: list[Any] | None = [] if epoch == 0 else None
            beat = r(f"g{s.tag}-{number}", member_uuid(1), epoch, None, None, 30_000, topics, regex, None, owned)
            answer = await s.ask(beat, 1, connection=USER, traced=False)
            if answer is None or answer.error_code:
                seen = str(None if answer is None else answer.error_code)
                break
            epoch = answer.member_epoch
            if answer.assignment is not None:
                found = [names.get(bytes(each.topic_id), "") for each in answer.assignment.topic_partitions]
                now = str(sorted(each.replace(s.tag, "@") for each in found if each))
                unchanged = 0 if now != seen else unchanged
                seen = now
            unchanged += 1
            if unchanged == 16:
                break
            await asyncio.sleep(0.05)
        s.note(f"{number} {regex and regex.replace(s.tag, '@')}", seen)
    await take_all(s, user)


WALKS = {"rights_that_change": rights_that_change, "subscriptions": subscriptions}
