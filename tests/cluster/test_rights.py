"""ACLs and quotas of real processes on a real ZooKeeper: written by one command, there after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.testing.processes import ProcessCluster
from tests.cluster.running import QUICK, eye, wait_until
from tests.support.commands import kafkalite

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

SECURE = QUICK | {"authorizer.enabled": True, "super.users": "User:ANONYMOUS"}


def test_rules_and_quotas_outlive_every_process(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, nodes=2, settings=SECURE) as cluster, eye(cluster.zookeeper_connect) as zk:
        add = ("admin", "acls", "add", "--topic", "t", "--allow-principal", "User:ann", "--operation", "read")
        assert kafkalite(*add, bootstrap=cluster.bootstrap).code == 0
        assert zk.json("/kafka-acl/Topic/t") == {
            "version": 1,
            "acls": [{"principal": "User:ann", "permissionType": "Allow", "operation": "Read", "host": "*"}],
        }
        limit = ("admin", "quotas", "set", "producer_byte_rate=1000", "--client-id", "slow")
        assert kafkalite(*limit, bootstrap=cluster.bootstrap).code == 0
        assert zk.json("/config/clients/slow") == {"version": 1, "config": {"producer_byte_rate": "1000"}}
        for broker_id in (1, 2):
            cluster.nodes[broker_id].kill()
        for broker_id in (1, 2):
            cluster.restart(broker_id)

        def listed() -> bool:
            acls = kafkalite("admin", "acls", "list", "--json", bootstrap=cluster.bootstrap)
            quotas = kafkalite("admin", "quotas", "list", "--json", bootstrap=cluster.bootstrap)
            return acls.code == quotas.code == 0 and (len(acls.json["acls"]), len(quotas.json["quotas"])) == (1, 1)

        wait_until(listed, "the rules after a restart")


def test_a_node_with_a_setting_that_means_nothing_does_not_start(tmp_path: Path) -> None:
    where = ("--zookeeper", "127.0.0.1:1", "--log-dir", str(tmp_path))
    done = kafkalite("serve", "--id", "1", *where, "--set", "max.connections.per.ip.overrides=10.0.0.1")
    assert done.code == 2, done
    assert "max.connections.per.ip.overrides" in done.err
    assert "Traceback" not in done.err
