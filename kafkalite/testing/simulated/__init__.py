"""The simulated implementations of `env`: a loop with virtual time, a clock, a network, disks, ZooKeeper."""
