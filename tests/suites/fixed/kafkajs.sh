#!/bin/bash
# KafkaJS's own tests (SUITE/source, a checkout with node_modules) against three nodes with its ports, certificate and users.
. "$(dirname "$0")/nodes.sh"
cp -r "$SUITE/source" "$WORK/source"
# The certificate of the suite is signed with SHA-1, which OpenSSL refuses today.
openssl req -x509 -newkey rsa:2048 -nodes -keyout "$WORK/key.pem" -out "$WORK/cert.pem" -days 30 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 2> /dev/null
(umask 077; cat "$WORK/cert.pem" "$WORK/key.pem" > "$WORK/keystore.pem"; printf 'test=testtest\nbob=bobbob\nalice=alicealice\n' > "$WORK/plain.users")
cp "$WORK/cert.pem" "$WORK/source/testHelpers/certs/cert-signed"
zookeeper
for id in 0 1 2; do
    node $id --rpc localhost:$((9190 + id)) --http localhost:$((9290 + id)) \
        --set "listeners=PLAINTEXT://localhost:$((9092 + 3 * id)),SSL://localhost:$((9093 + 3 * id)),SASL_SSL://localhost:$((9094 + 3 * id))" \
        --set rpc.security.protocol=PLAINTEXT --set ssl.keystore.location="$WORK/keystore.pem" \
        --set sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512 --set sasl.plain.users.location="$WORK/plain.users" \
        --set authorizer.enabled=true --set allow.everyone.if.no.acl.found=true --set super.users=User:ANONYMOUS \
        --set default.replication.factor=2 --set num.partitions=2 --set offsets.topic.num.partitions=10 \
        --set transaction.state.log.num.partitions=10
done
for port in 9092 9095 9098; do wait_for 127.0.0.1 $port; done
for size in 256 512; do
    users localhost:9092 testscram SCRAM-SHA-$size "testtestscram=$size"
done
cd "$WORK/source" || exit 1
KAFKA_VERSION=2.4 NODE_ENV=test KAFKAJS_DEBUG_PROTOCOL_BUFFERS=1 JEST_JUNIT_OUTPUT_DIR="$(dirname "$REPORT")" JEST_JUNIT_OUTPUT_NAME="$(basename "$REPORT")" \
    node_modules/.bin/jest --ci --maxWorkers=1 --forceExit --testPathPattern "${ONLY:-src/(broker|admin|producer|consumer|cluster)/}"
