# Read by the other scripts: nodes at fixed addresses in a network namespace, which a suite expects. WORK: an empty directory.
ip link set lo up
trap 'kill -9 $(cat "$WORK"/pid-* 2>/dev/null) 2>/dev/null' EXIT

wait_for() { # HOST PORT
    until (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; do sleep 0.2; done
}

zookeeper() {
    "$PYTHON" -m kafkalite_cli zookeeper --dir "$WORK/zookeeper" --port 2181 > "$WORK/zookeeper.log" 2>&1 &
    echo $! > "$WORK/pid-zookeeper"
    wait_for 127.0.0.1 2181
}

node() { # ID ARGUMENTS
    local id=$1
    shift
    "$PYTHON" -m kafkalite_cli serve --id "$id" --zookeeper 127.0.0.1:2181 --log-dir "$WORK/node-$id" \
        --set group.initial.rebalance.delay.ms=0 "$@" >> "$WORK/node-$id.log" 2>&1 < /dev/null &
    echo $! > "$WORK/pid-$id"
}

users() { # HOST:PORT NAME MECHANISM PASSWORD
    echo "$4" | "$PYTHON" -m kafkalite_cli admin users set "$2" --mechanism "$3" --bootstrap "$1"
}
