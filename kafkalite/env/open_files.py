"""How many files the process may have open, and how many of them may be logs that are not in use just now."""

from __future__ import annotations

import resource

from kafkalite.env.seams import LEAST_LOG_FILES

#: What each node of a process may keep open, of the process's limit: the rest is for connections, and for other nodes.
_SHARE = 4
_MOST = 8192
#: "Unlimited" is none of our business beyond this.
_ENOUGH = 1 << 20


def raise_limit() -> None:
    """As far as the process is allowed to. Many systems begin with 1,024, which a few hundred partitions and clients fill."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def log_files() -> int:
    """How many log files a node keeps open: to open one anew, and read its indexes, costs several times what an append does."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST
    # Of a small limit no more than half: connections would take the rest, and appends would fail for want of a file.
    return max(min(LEAST_LOG_FILES, soft // 2), min(_MOST, soft // _SHARE))
