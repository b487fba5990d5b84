"""Classic errors of a replicated log, put into the running program on purpose: a simulation that never fails proves nothing.

Each has been an error of Kafka's (docs/invariants.md, known flaws). `python -m kafkalite.testing.simulate --plant F8` runs seed after seed
until one finds it.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.testing.simulation.plants import coordinators, groups, replication, storage
from kafkalite.testing.simulation.plants.patch import Patch

#: Errors that drawn seeds find with `--plant`, but no directed plan of the tests brings out in a few runs.
RARE = frozenset({"unregistered"})

PLANTS: dict[str, Callable[[Patch], None]] = {
    "F1": replication.truncate_to_the_high_watermark,
    "F4": replication.controllers_of_the_past,
    "F8": replication.commit_over_the_proposed_isr,
    "F28": replication.recreated_in_the_isr,
    "taken-in": replication.only_the_isr_has_lost,
    "elsewhere": replication.begins_again_without_records,
    "first-copy": replication.copied_from_two_leaders,
    "F25": storage.no_deduplication,
    "ended": storage.retries_of_what_has_ended,
    "C10": replication.joins_at_once,
    "first": replication.begins_anywhere,
    "outside": replication.remembers_replicas_outside,
    "ack": replication.ack_before_replication,
    "ELR": replication.leads_whatever_it_lost,
    "ELR-min": replication.eligible_too_easily,
    "deleted": storage.deleted_for_a_minute,
    "copy": storage.last_copy_set_aside,
    "writers": storage.two_writers_of_a_checkpoint,
    "empty": storage.stops_at_an_empty_segment,
    "remembered": storage.remembers_what_has_ended,
    "txnindex": storage.unsynced_transaction_indexes,
    "lie": storage.trusts_closed_segments,
    "hole": storage.trusts_logs_with_a_hole,
    "decided": coordinators.uncommitted_decisions,
    "vanished": replication.vanished_is_deleted,
    "put-back": replication.put_back_is_as_before,
    "requests": replication.requests_are_read_once,
    "put-back-new": replication.leaders_keep_what_they_know,
    "old-copy": storage.trusts_old_copies,
    "tombstones": storage.tombstones_for_a_while,
    "disk-away": storage.forgets_offline_disks,
    "lost": coordinators.connections_that_stay,
    "away": replication.fetching_is_in_sync,
    "fsync": storage.no_fsync,
    "unregistered": replication.takes_commands_of_its_earlier_epoch,
    "refused": replication.refused_for_good,
    "memory": replication.closed_connections_keep_memory,
    "notice": replication.notices_to_nobody,
    "vanished-markers": coordinators.markers_only_for_topics_that_are_there,
    "unverified": coordinators.unverified_transactions,
    "owners": coordinators.given_before_given_up,
    "shared": coordinators.unreplicated_share_states,
    "in-place": coordinators.used_where_received,
    "settings": coordinators.last_writer_of_settings,
    "unpruned": coordinators.keeps_share_states,
    "uncompacted": storage.compacts_no_internal_topic,
    "swap": storage.cuts_beside_a_swap,
    "purge": coordinators.purges_what_is_there_by_then,
    "spared": coordinators.purges_what_is_committed_meanwhile,
    "missing": coordinators.missing_is_deleted,
    "name": coordinators.offsets_of_a_name,
    "reloaded": coordinators.writes_on_an_earlier_load,
    "late": replication.late_commands,
    "acl-read": coordinators.last_read_of_acls,
    "replaced": coordinators.answers_when_replaced,
    "internal": replication.internal_topics_are_forgotten,
    "tasks": coordinators.tasks_given_before_given_up,
    "topology": groups.topology_of_a_deleted_group,
    "outlived": groups.deletes_before_beginnings_end,
    "unstable": groups.reads_unstable_offsets,
    "set-back": groups.last_marker_wins,
}
