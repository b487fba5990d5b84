"""The controller: pure decisions (`decisions/`) beside the shells that perform them.

The shells: controller (the node's face), controller_election (the election on /controller), event_loop (one elected epoch: one
task, one inbox), storage (ZooKeeper), channels (RPC), the failure detectors and the balancer's reports.
"""
