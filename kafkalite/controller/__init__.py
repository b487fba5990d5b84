"""The controller: pure decisions (state.py to decide.py) beside the shells that perform them.

Pure: state, events, effects, elections, placement, commands, decide, problems, queueing, reassignment_steps.
Shells: controller (the node's face), candidate (the race for /controller), leadership (one term of office: one
task, one inbox), storage (ZooKeeper), channels (RPC), orders (topic creation and deletion, on any node).
"""
