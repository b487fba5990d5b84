"""A node's identity, its listeners, and the address of ZooKeeper."""

from kafkalite.config.keys import INT_MAX, area, setting


@area
class NodeSettings:
    """A node's identity, its listeners, and the address of ZooKeeper."""

    broker_id: int = setting(-1, "this node's id (serve --id)", low=-1, high=INT_MAX)
    zookeeper_connect: str = setting("127.0.0.1:2181", "addresses of the ZooKeeper ensemble: HOST:PORT,…/chroot")
    zookeeper_session_timeout_ms: int = setting(
        18_000, "timeout of the ZooKeeper session; must be below replica.lag.time.max.ms", low=200, high=INT_MAX
    )
    host: str = setting(
        "127.0.0.1", "address or name that the listeners bind; clients and nodes get it as it is written here"
    )
    kafka_port: int = setting(9092, "port of the Kafka listener; 0: any free port", low=0, high=65535)
    rpc_port: int = setting(9192, "port of the RPC listener (msgpack); 0: any free port", low=0, high=65535)
    http_port: int = setting(9292, "port of metrics and console; 0: any free port, -1: no listener", low=-1, high=65535)
    listeners: str = setting(
        "",
        "Kafka listeners, NAME://HOST:PORT,NAME://HOST:PORT; port 0: any free port; empty: one listener at host and kafka.port"
        " with listener.security.protocol",
    )
    advertised_listeners: str = setting(
        "",
        "address that clients of each Kafka listener get, NAME://HOST:PORT,…; port 0: the bound port; empty: where it is bound."
        " NAME is that in listeners; of the one listener at kafka.port its security protocol, or any other name",
        dynamic=True,
    )
    listener_security_protocol_map: str = setting(
        "",
        "security protocols of the listeners in listeners, NAME:PROTOCOL,…; a listener that is named like a protocol needs no entry",
    )
    inter_broker_listener_name: str = setting(
        "", "Kafka listener to which the other nodes connect for transactions; empty: the first one"
    )
    advertised_rpc: str = setting(
        "", "address that other nodes get for the RPC listener, HOST:PORT; port 0: rpc.port; empty: host and rpc.port"
    )
    advertised_http: str = setting(
        "",
        "address at which browsers find the HTTP listener, HOST:PORT; the consoles of the other nodes link to it; port 0: http.port;"
        " empty: host and http.port, and if host is all addresses the host of advertised.rpc",
    )
    broker_rack: str = setting("", "rack of this broker, used to place replicas")
