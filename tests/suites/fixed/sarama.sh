#!/bin/bash
# sarama's compiled functional tests (SUITE/tests) against five nodes behind SUITE/toxiproxy. They stop and start brokers with
# `docker compose`: here that is this script, called again under that name.
case "$(basename "$0")" in docker)
    . "$WORK/scripts/nodes.sh"
    trap - EXIT
    number=""
    for word in "$@"; do case $word in kafka-*) number=${word#kafka-} ;; esac; done
    case "$*" in
    *" stop "*)
        kill "$(cat "$WORK/pid-$number")"
        while kill -0 "$(cat "$WORK/pid-$number")" 2>/dev/null; do sleep 0.2; done
        ;;
    *" start "*)
        . "$WORK/scripts/broker.sh"
        broker "$number"
        wait_for 127.0.0.2 $((29090 + number))
        ;;
    *logs*) cat "$WORK"/node-*.log ;;
    *) exit 1 ;;
    esac
    exit 0
    ;;
esac
. "$(dirname "$0")/nodes.sh"
mkdir "$WORK/scripts"
cp "$(dirname "$0")/nodes.sh" "$WORK/scripts"
cp "$0" "$WORK/scripts/docker"
chmod +x "$WORK/scripts/docker"
cat > "$WORK/scripts/broker.sh" <<'END'
broker() {
    node "$1" --kafka 127.0.0.2:$((29090 + $1)) --rpc 127.0.0.2:$((9190 + $1)) --http 127.0.0.2:$((9290 + $1)) \
        --set broker.rack="$1" --set advertised.listeners=PLAINTEXT://127.0.0.1:$((29090 + $1)) \
        --set default.replication.factor=2 --set auto.create.topics.enable=false --set offsets.topic.num.partitions=10 \
        --set transaction.state.log.num.partitions=10 \
        --set replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector
}
END
. "$WORK/scripts/broker.sh"
zookeeper
for number in 1 2 3 4 5; do broker $number; done
"$SUITE/toxiproxy" -port 8474 > "$WORK/toxiproxy.log" 2>&1 &
echo $! > "$WORK/pid-toxiproxy"
wait_for 127.0.0.1 8474
for number in 1 2 3 4 5; do
    port=$((29090 + number))
    wait_for 127.0.0.2 $port
    curl -sS -X POST 127.0.0.1:8474/proxies \
        -d "{\"name\":\"kafka$number\",\"listen\":\"127.0.0.1:$port\",\"upstream\":\"127.0.0.2:$port\",\"enabled\":true}"
done
cd "$SUITE/source" || exit 1
PATH="$WORK/scripts:$PATH" TOXIPROXY_ADDR=http://127.0.0.1:8474 KAFKA_VERSION=4.3.1 \
    "$SUITE/tests" -test.v -test.timeout 40m -test.run "${ONLY:-TestFunc}"
