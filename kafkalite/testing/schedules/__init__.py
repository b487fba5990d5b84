"""Fault schedules on real processes, each with its own kind of trouble, under numbered records; then everything is counted.

    python -m kafkalite.testing.schedules suspend-all --seed 7
    python -m kafkalite.testing.schedules --list

`kafkalite.testing.chaos` draws its faults from one bag; here each run is one story (a laptop that slept, a rack that lost
its power, a node in a crash loop). After each: every acknowledged record is there once, where it was acknowledged, and in
order; groups of transactions, where there are some, can be read once if they were committed, and not if they were aborted; the
replicas are equal to the byte; the cluster is in sync without an operator; no node has ended unexpectedly; no disk is given up; no node
has grown beyond bounds; no log has a traceback.

`stage` is what stories are made of, `verdict` plays one and counts; the others are the stories.
"""

from kafkalite.testing.schedules import clocks, cuts, ensemble, nodes, sessions, znodes
from kafkalite.testing.schedules.stage import SCHEDULES
from kafkalite.testing.schedules.verdict import lacking, run

__all__ = ["SCHEDULES", "clocks", "cuts", "ensemble", "lacking", "nodes", "run", "sessions", "znodes"]
