#!/bin/bash
# aiokafka's own tests (SUITE/source, a checkout; SUITE/venv) against three nodes in place of its container. stand_in/docker.py calls
# this script again: `nodes PORT…` where the suite starts its broker, and by the names of Kafka's tools.
HERE="$(cd "$(dirname "$0")" && pwd)"
. "$HERE/nodes.sh"
[ $# = 0 ] || trap - EXIT # the first call ends the nodes

listening() { # ID PORT PORT PORT PORT
    local id=$1
    node "$id" --rpc 127.0.0.1:$((9190 + id)) --http 127.0.0.1:$((9290 + id)) \
        --set "listeners=PLAINTEXT://127.0.0.1:$2,SSL://127.0.0.1:$3,SASL_PLAINTEXT://127.0.0.1:$4,SASL_SSL://127.0.0.1:$5" \
        --set rpc.security.protocol=PLAINTEXT --set ssl.client.auth=required \
        --set ssl.keystore.location="$WORK/keystore.pem" --set ssl.truststore.location="$WORK/source/tests/ssl_cert/ca.crt" \
        --set sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512 --set sasl.plain.users.location="$WORK/plain.users" \
        --set authorizer.enabled=true --set allow.everyone.if.no.acl.found=true --set 'super.users=User:admin;User:ANONYMOUS' \
        --set num.partitions=2 --set default.replication.factor=3 --set offsets.topic.num.partitions=3 \
        --set transaction.state.log.num.partitions=3
}

case "$1" in
nodes)
    listening 0 "${@:2}" # the id that the suite asks
    for id in 1 2; do
        listening $id $((9092 + 10 * id)) $((9093 + 10 * id)) $((9094 + 10 * id)) $((9095 + 10 * id))
    done
    for port in "$2" 9102 9112; do wait_for 127.0.0.1 "$port"; done
    exit ;;
kafka-acls) # HOST:PORT --force --authorizer-properties NAME=VALUE --add|--remove|--list OPTIONS
    exec "$PYTHON" -m kafkalite_cli admin acls "${6#--}" --bootstrap "$2" "${@:7}" ;;
kafka-configs) # HOST:PORT --zookeeper NAME --alter --add-config MECHANISM=[password=WORD],… --entity-type users --entity-name NAME
    password=${7##*password=}
    for size in 256 512; do
        users "$2" "${11}" SCRAM-SHA-$size "${password%]}" || exit
    done
    exit ;;
esac

cp -r "$SUITE/source" "$WORK/source"
mkdir "$WORK/bin" "$WORK/source/tests/ssl_cert"
# There is no Kerberos here, nor a Java keystore.
ln -s /bin/true "$WORK/bin/ktutil"
ln -s /bin/true "$WORK/bin/keytool"
export WORK PATH="$WORK/bin:$PATH"
(cd "$WORK/source/tests/ssl_cert" && bash "$WORK/source/gen-ssl-certs.sh") > "$WORK/certificates.log" 2>&1 || exit
(umask 077; cat "$WORK"/source/tests/ssl_cert/server.{crt,key} > "$WORK/keystore.pem"; printf '%s=%s\n' admin admin test test test2 test2 > "$WORK/plain.users")
zookeeper
# The suite has the package as it was installed, not the checkout's, which is not compiled.
rm -r "$WORK/source/aiokafka"
cd "$WORK/source" || exit 1
KAFKALITE_PATH=$PYTHONPATH PYTHONPATH="$HERE/../stand_in" "$SUITE/venv/bin/python" -m pytest -v -p no:cacheprovider --timeout 240 \
    --docker-image kafkalite:2.13_4.4.0 --no-pull --junitxml="$REPORT" ${ONLY:+-k "$ONLY"} tests
