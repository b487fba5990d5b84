"""What users of other tools type, and what it is called here: appended to the error. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

#: First word of a command of kafka-*.sh, rpk or kcat -> what to use. At the top level and under `admin`.
_COMMANDS = {
    "topic": "'kafkalite admin list-topics', 'create-topic', 'describe', 'delete-topic'",
    "list": "'kafkalite admin list-topics'",
    "group": "'kafkalite admin groups'",
    "consumer-group": "'kafkalite admin groups'",
    "broker": "'kafkalite admin broker list'",
    "cluster": "'kafkalite admin describe-cluster' or 'kafkalite admin health'",
    "acl": "'kafkalite admin acls'",
    "security": "'kafkalite admin acls' and 'kafkalite admin users'",
    "user": "'kafkalite admin users'",
    "config": "'kafkalite admin config'",
    "quota": "'kafkalite admin quotas'",
    "transaction": "'kafkalite admin transactions'",
    "txn": "'kafkalite admin transactions'",
    "partition": "'kafkalite admin describe' and 'kafkalite admin reassign'",
    "log-dir": "'kafkalite admin disk list'",
    "schema": "the schema registry on every node's HTTP port (docs/schemas.md)",
    "registry": "the schema registry on every node's HTTP port (docs/schemas.md)",
    "version": "'kafkalite --version'",
    "producer": "'kafkalite produce'",
    "consumer": "'kafkalite consume'",
    "offset": "'kafkalite admin groups'",
    "lag": "'kafkalite admin groups describe'",
    "ls": "'kafkalite admin list-topics'",
    "describe-topic": "'kafkalite admin describe'",
    "alter": "'kafkalite admin config set' or 'kafkalite admin add-partitions'",
    "alter-topic": "'kafkalite admin config set' or 'kafkalite admin add-partitions'",
    "alter-config": "'kafkalite admin config set'",
    "leader-election": "'kafkalite admin elect'",
    "rebalance": "'kafkalite admin balance'",
    "reassign-partition": "'kafkalite admin reassign'",
    "delegation-token": "'kafkalite admin tokens'",
    "decommission": "'kafkalite admin broker decommission'",
    "maintenance": "'kafkalite admin broker cordon' or 'kafkalite admin rolling-restart'",
    "redpanda": "'kafkalite admin broker', 'kafkalite admin health', or 'kafkalite serve'",
    "status": "'kafkalite admin health' or 'kafkalite top'",
    "start": "'kafkalite serve' or 'kafkalite dev'",
    "server-start": "'kafkalite serve'",
    "container": "'kafkalite dev'",
    "run-class": "'kafkalite --help'",
    "connect": "Kafka Connect: it is a client, and runs against these brokers",
    "mirror-maker": "Kafka's MirrorMaker 2 (docs/moving-from-kafka.md)",
}
#: (group of commands, word) -> what to use.
_WITHIN = {
    ("config", "describe"): "'kafkalite admin config get'",
    ("config", "list"): "'kafkalite admin config get --all'",
    ("config", "alter"): "'kafkalite admin config set'",
    ("config", "edit"): "'kafkalite admin config set'",
    ("perf", "producer"): "'kafkalite perf produce'",
    ("perf", "consumer"): "'kafkalite perf consume'",
    ("perf", "end-to-end"): "'kafkalite perf e2e'",
    ("perf", "latency"): "'kafkalite perf e2e'",
    ("groups", "seek"): "'kafkalite admin groups reset-offsets'",
    ("groups", "reset"): "'kafkalite admin groups reset-offsets'",
    ("users", "add"): "'kafkalite admin users set'",
    ("users", "create"): "'kafkalite admin users set'",
    ("acls", "create"): "'kafkalite admin acls add'",
    ("acls", "delete"): "'kafkalite admin acls remove'",
    ("broker", "drain"): "'kafkalite admin broker decommission'",
    ("broker", "describe"): "'kafkalite admin broker list'",
    ("reassign", "verify"): "'kafkalite admin reassign status'",
    ("reassign", "generate"): "'kafkalite admin reassign plan'",
    ("disk", "describe"): "'kafkalite admin disk list'",
    ("profile", "add"): "'kafkalite profile create'",
}
#: Options of kcat that stand where a command stands here.
_KCAT = {
    "-C": "'kafkalite consume TOPIC'",
    "-G": "'kafkalite consume TOPIC --group GROUP'",
    "-P": "'kafkalite produce TOPIC'",
    "-L": "'kafkalite admin describe'",
    "-b": "'kafkalite COMMAND --bootstrap HOST:PORT'",
    "-t": "'kafkalite consume TOPIC' or 'kafkalite produce TOPIC'",
    "-v": "'kafkalite --version'",
    "-V": "'kafkalite --version'",
    "--list": "'kafkalite admin list-topics'",
    "--describe": "'kafkalite admin describe'",
    "--create": "'kafkalite admin create-topic'",
}
#: (option of another tool, the option here, what to write). It is a hint only where the command has the option.
_OPTIONS = (
    ("--from-beginning", "--from", "--from beginning"),
    ("--offset", "--from", "--from OFFSET"),
    ("--offset", "--before", "--before OFFSET"),
    ("-o", "--from", "--from OFFSET"),
    ("--max-messages", "--max", "--max N"),
    ("-n", "--max", "--max N"),
    ("--config", "--set", "--set KEY=VALUE"),
    ("--topic-config", "--set", "--set KEY=VALUE"),
    ("-p", "--partitions", "--partitions N"),
    ("-p", "--partition", "--partition N"),
    ("-r", "--replication-factor", "--replication-factor N"),
    ("-g", "--group", "--group GROUP"),
    ("-f", "--format", "--format TEXT"),
    ("--to", "--to-earliest", "--to-earliest, --to-latest, --to-datetime or --to-offset"),
    ("--bootstrap-server", "--bootstrap", "--bootstrap HOST:PORT"),
    ("--broker-list", "--bootstrap", "--bootstrap HOST:PORT"),
    ("--brokers", "--bootstrap", "--bootstrap HOST:PORT"),
    ("-b", "--bootstrap", "--bootstrap HOST:PORT"),
    ("--command-config", "--client-config", "--client-config FILE"),
    ("--producer.config", "--client-config", "--client-config FILE"),
    ("--consumer.config", "--client-config", "--client-config FILE"),
    ("-X", "--client-config", "--client-config FILE"),
    ("-F", "--client-config", "--client-config FILE"),
    ("-c", "--max", "--max N"),
    ("-e", "--exit-at-end", "--exit-at-end"),
    ("--timeout-ms", "--exit-at-end", "--exit-at-end"),
    ("-G", "--group", "--group GROUP"),
    ("-K", "--format", "--format '{key} {value}'"),
    ("-K", "--key-separator", "--key-separator TEXT"),
    ("--property", "--format", "--format '{key} {value}'"),
    ("--property", "--key-separator", "--key-separator TEXT"),
    ("--formatter", "--format", "--format '{key} {value}'"),
    ("--isolation-level", "--read-committed", "--read-committed"),
    ("-k", "--input", "--input json: a line has its key"),
    ("-H", "--input", "--input json: a line has its headers"),
    ("-H", "--header", "--header NAME=VALUE"),
    ("-z", "--compression", "--compression CODEC"),
    ("--compression-codec", "--compression", "--compression CODEC"),
    ("--request-required-acks", "--acks", "--acks all, 1 or 0"),
    ("--num-records", "--records", "--records N"),
    ("--messages", "--records", "--records N"),
    ("--record-size", "--size", "--size BYTES"),
    ("--throughput", "--rate", "--rate N"),
    ("--to", "--before", "--before OFFSET"),
    ("--replicas", "--replication-factor", "--replication-factor N"),
)
#: Arguments here (their metavars) -> options with which other tools take them.
_ARGUMENTS = {
    "TOPIC": ("--topic", "-t"),
    "NAME": ("--topic", "-t"),
    "TOPICS": ("--topic", "-t"),
    "GROUP": ("--group", "-g"),
    "KEY=VALUE": ("--set", "--add-config"),
    "KEYS": ("--delete-config",),
}
_UNKNOWN_KEY = re.compile(r"(?:^|: )([\w.-]{1,80}): no such (?:topic |broker )?configuration$")


def for_command(word: str, verbs: Collection[str], group: str = "") -> str | None:
    """What to use instead of this unknown command of `group` (empty: of the program itself); `verbs` are those of `admin`."""
    if found := _WITHIN.get((group, word)):
        return found
    if group not in ("", "admin"):
        return None
    if word in verbs:
        return f"'kafkalite admin {word}'"
    one = word.removesuffix("s")
    return _COMMANDS.get(word) or _COMMANDS.get(one) or (f"'kafkalite admin {one}'" if one in verbs else None)


def for_option(
    option: str, options: Collection[str], arguments: Collection[str], *, is_command: bool = True
) -> str | None:
    """What to use instead of this unknown option of a command with these options and arguments (their metavars).

    Not `is_command`: it stands where a command should stand.
    """
    if not is_command and option in _KCAT:
        return _KCAT[option]
    for theirs, ours, text in _OPTIONS:
        if theirs == option and ours in options:
            return text
    if option == "--yes":
        return "the command without it: it does not ask"
    names = [each.strip("[].…") for each in arguments]
    return next((f"{each} without an option in front" for each in names if option in _ARGUMENTS.get(each, ())), None)


def with_key(text: str) -> str:
    """An error about an unknown setting, with the closest one that there is."""
    found = _UNKNOWN_KEY.search(text)
    if found is None:
        return text
    from kafkalite.config import BROKER_KEYS, TOPIC_KEYS

    close = difflib.get_close_matches(found[1], sorted({*TOPIC_KEYS, *BROKER_KEYS}), 1)
    return f"{text}; did you mean {close[0]}?" if close else text
