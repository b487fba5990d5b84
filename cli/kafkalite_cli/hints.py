"""What users of other tools type, and what it is called here: appended to the error. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

#: First word of a command of kafka-*.sh, rpk or kcat -> what to use. At the top level and under `admin`.
_COMMANDS = {
    "topic": "'kafkalite admin list-topics', 'create-topic', 'describe', 'delete-topic', or 'kafkalite produce' and 'consume'",
    "list": "'kafkalite admin list-topics'",
    "group": "'kafkalite admin groups list', 'describe', 'reset-offsets', 'delete'",
    "consumer-group": "'kafkalite admin groups list', 'describe', 'reset-offsets', 'delete'",
    "broker": "'kafkalite admin broker list'",
    "node": "'kafkalite admin broker list'",
    "cluster": "'kafkalite admin describe-cluster', 'kafkalite admin health' or 'kafkalite admin config'",
    "debug": "'kafkalite admin health', 'kafkalite admin why' or 'kafkalite admin trace'",
    "transform": "'kafkalite pipeline'",
    "storage": "'kafkalite serve': a node prepares its directories at the first start",
    "feature": "Kafka's kafka-features with any node's address (docs/kafka-tools.md)",
    "get-offset": "'kafkalite admin describe TOPIC'",
    "verify": "'kafkalite admin reassign status'",
    "query": "'kafkalite consume TOPIC --key TEXT' or '--grep REGEX'",
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
    ("admin", "top"): "'kafkalite top'",
    ("admin", "produce"): "'kafkalite produce'",
    ("admin", "consume"): "'kafkalite consume'",
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
    "--zookeeper": "'kafkalite COMMAND --bootstrap HOST:PORT': clients talk to brokers only",
    "-t": "'kafkalite consume TOPIC' or 'kafkalite produce TOPIC'",
    "-X": "'kafkalite COMMAND --client-config FILE', or --bootstrap HOST:PORT",
    "-Q": "'kafkalite consume TOPIC --from TIME'",
    "-v": "'kafkalite --version'",
    "-V": "'kafkalite --version'",
    "--list": "'kafkalite admin list-topics'",
    "--describe": "'kafkalite admin describe'",
    "--create": "'kafkalite admin create-topic'",
}
#: Options of Kafka's tools that are commands here, within a group of commands.
_VERBS = {
    "--reset-offsets": "reset-offsets",
    "--verify": "status",
    "--generate": "plan",
    "--alter": "set",
    "--add": "add",
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
    ("-c", "--set", "--set KEY=VALUE"),
    ("--tail", "--last", "--last N"),
    ("--dry-run", "--cancel", "'kafkalite admin reassign plan --drain-broker N': it shows what would move"),
    ("--dry-run", "--execute", "the command without it: it only shows, until you add --execute"),
    ("--entity-type", "--topic", "--topic NAME, --broker N or --cluster"),
    ("--entity-name", "--topic", "--topic NAME, --broker N or --cluster"),
    ("--election-type", "--preferred", "--preferred or --unclean"),
    ("--topics-to-move-json-file", "--topic", "--topic NAME"),
    ("--broker-list", "--brokers", "--brokers 1,2,3"),
    ("--partitions", "--total", "--total N: how many it has then"),
    ("-n", "--count", "--count N: how many to add"),
    ("--num", "--count", "--count N: how many to add"),
    ("--follow", "--exit-at-end", "the command without it: it goes on until Ctrl-C"),
    ("-J", "--json", "--json"),
    ("-D", "--format", "--format TEXT"),
    ("-e", "--exit-at-end", "--exit-at-end"),
    ("--timeout-ms", "--exit-at-end", "--exit-at-end"),
    ("-G", "--group", "--group GROUP"),
    ("-K", "--format", "--format '{key} {value}'"),
    ("-K", "--key-separator", "--key-separator TEXT"),
    ("--property", "--format", "--format '{key} {value}'"),
    ("--property", "--key-separator", "--key-separator TEXT"),
    ("--formatter", "--format", "--format '{key} {value}'"),
    ("--isolation-level", "--read-committed", "--read-committed"),
    ("-k", "--key", "--key TEXT"),
    ("-H", "--header", "--header NAME=VALUE"),
    ("--password", "--mechanism", "stdin or KAFKALITE_USER_PASSWORD: lists of processes show options"),
    ("-p", "--mechanism", "stdin or KAFKALITE_USER_PASSWORD: lists of processes show options"),
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
    "PLAN": ("--reassignment-json-file",),
}
_UNKNOWN_KEY = r"(?:^|: )([\w.-]{1,80}): no such (?:topic |broker )?configuration$"


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
    option: str,
    options: Collection[str],
    arguments: Collection[str],
    *,
    path: str = "",
    verbs: Collection[str] | None = None,
) -> str | None:
    """What to use instead of this unknown option of a command with these options and arguments (their metavars).

    `verbs`: it stands where one of these commands of the group `path` should stand.
    """
    if verbs is not None:
        word, is_top = option.removeprefix("--"), path.rpartition(" ")[2] in ("kafkalite", "admin")
        if is_top and option in _KCAT:
            return _KCAT[option]
        if verb := next((each for each in (word, _VERBS.get(option, "")) if each in verbs), None):
            return f"'{path} {verb}'"
        if instead := _WITHIN.get((path.rpartition(" ")[2], word)):
            return instead
    for theirs, ours, text in _OPTIONS:
        if theirs == option and ours in options:
            return text
    if option == "--yes":
        return "the command without it: it does not ask"
    names = [each.strip("[].…") for each in arguments]
    return next((f"{each} without an option in front" for each in names if option in _ARGUMENTS.get(each, ())), None)


#: Kafka's settings of listeners that there are not here -> what to set instead. A name of a listener may be in front.
_KAFKA_KEYS = {
    "security.inter.broker.protocol": "set inter.broker.listener.name (and rpc.security.protocol, if nodes should differ from it)",
    "controller.listener.names": "there is no controller listener: leave it out, here and in listeners",
    "early.start.listeners": "leave it out: a node listens when it can serve",
    "sasl.jaas.config": "set inter.broker.username and inter.broker.password; users are in `kafkalite admin users`, or in sasl.plain.users.location",
    "ssl.keystore.type": "leave it out: keystores are PEM files",
    "ssl.truststore.type": "leave it out: truststores are PEM files",
    "ssl.keystore.password": "keystores are PEM files; ssl.key.password is the key's (`openssl pkcs12 -in store.p12 -nodes -out store.pem`)",
    "ssl.truststore.password": "leave it out: truststores are PEM files",
    "num.network.threads": "leave it out: a node has one event loop",
    "max.connection.creation.rate": "set it for all Kafka listeners together, without listener.name",
}


def closest(word: str, words: Sequence[str]) -> str | None:
    """The one of `words` that a mistyped `word` meant; None: it resembles none."""
    import difflib  # only an error needs it

    return next(iter(difflib.get_close_matches(word, words, 1)), None)


def with_key(text: str) -> str:
    """An error about an unknown setting, with the closest one that there is."""
    found = re.search(_UNKNOWN_KEY, text)
    if found is None:
        return text
    for key, instead in _KAFKA_KEYS.items():
        if found[1] == key or (found[1].startswith("listener.name.") and found[1].endswith("." + key)):
            return f"{text}; {instead}"
    from kafkalite.config import BROKER_KEYS, TOPIC_KEYS

    close = closest(found[1], sorted({*TOPIC_KEYS, *BROKER_KEYS}))
    return f"{text}; did you mean {close}?" if close else text
