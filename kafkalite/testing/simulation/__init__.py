"""One seed: what is planned (`plan`), who uses the cluster (`workloads`), what goes wrong (`faults`), what must hold (`checkers`)."""
