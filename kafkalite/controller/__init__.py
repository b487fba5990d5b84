"""The controller: pure decisions (state.py to decide.py) beside the shells that perform them.

Pure: state, events, effects, elections, placement, commands, decide, problems, queueing, reassignment_steps.
Shells: controller (the node's face), controller_election (the election on /controller), event_loop (one elected epoch: one
task, one inbox), storage (ZooKeeper), channels (RPC).
"""
