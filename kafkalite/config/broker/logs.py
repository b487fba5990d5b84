"""Log directories as a node keeps them; a topic's own settings are in `config.topic`."""

from kafkalite.config.keys import INT_MAX, area, setting


@area
class LogSettings:
    """Log directories as a node keeps them; a topic's own settings are in `config.topic`."""

    log_dirs: tuple[str, ...] = setting(("./kafkalite-data",), "log directories, one per disk")
    cordoned_log_dirs: str = setting(
        "",
        "log directories of this broker that get no new replicas, separated by commas; *: all, so that the broker gets none",
        dynamic=True,
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        60_000, "interval at which recovery points are saved", low=1, high=INT_MAX
    )
    log_retention_check_interval_ms: int = setting(
        300_000, "interval of the checks for segments that retention deletes", low=1
    )
    log_cleaner_backoff_ms: int = setting(15_000, "pause between two searches for logs to compact", low=1, dynamic=True)
    # With the probe's deadline of 1 s well below the 5 s after which the kernel (ext4, jbd2) writes its journal: from then on each
    # append to a device that hangs waits, and the loop with it. The probe syncs, so those 5 s begin again with each that succeeds.
    log_dir_probe_interval_ms: int = setting(
        2_000,
        "interval at which a small file is written, synced and read on every disk, to detect a dead disk",
        low=100,
    )
    log_dir_probe_timeout_ms: int = setting(
        5_000, "timeout for a probe of a disk that answers slowly, but whose device completes operations", low=1_000
    )
    producer_id_expiration_ms: int = setting(
        86_400_000, "time after which the state of an inactive producer is removed", low=1, high=INT_MAX, dynamic=True
    )
    max_producer_ids_per_broker: int = setting(
        500_000,
        "number of idempotent producers that all replicas of a broker remember; beyond it, those partitions forget some that remember the"
        " most",
        low=1,
        dynamic=True,
    )
    stray_delete_delay_ms: int = setting(
        86_400_000,
        "minimum time for which a replica's directory that was set aside (-stray) is kept; it is also kept until its records are in sync elsewhere",
        low=0,
    )
    stray_max_fraction_percent: int = setting(
        50, "maximum share of local replicas that may be set aside as strays at once, in percent", low=0, high=100
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        0, "rate at which a replica is copied between disks of the node; 0: no fixed limit", low=0, dynamic=True
    )
