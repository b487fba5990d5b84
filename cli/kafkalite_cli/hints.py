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
)
#: Arguments here (their metavars) -> options with which other tools take them.
_ARGUMENTS = {
    "TOPIC": ("--topic", "-t"),
    "NAME": ("--topic", "-t"),
    "TOPICS": ("--topic", "-t"),
    "GROUP": ("--group", "-g"),
}
_UNKNOWN_KEY = re.compile(r"(?:^|: )([\w.-]{1,80}): no such (?:topic |broker )?configuration$")


def for_command(word: str, verbs: Collection[str]) -> str | None:
    """What to use instead of this unknown command; `verbs` are those of `admin`."""
    if word in verbs:
        return f"'kafkalite admin {word}'"
    return _COMMANDS.get(word) or _COMMANDS.get(word.removesuffix("s"))


def for_option(option: str, options: Collection[str], arguments: Collection[str]) -> str | None:
    """What to use instead of this unknown option of a command with these options and arguments (their metavars)."""
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
