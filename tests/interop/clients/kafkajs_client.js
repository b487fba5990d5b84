// KafkaJS against a cluster: one JSON line of what it saw.
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

async function main() {
  const seen = {};
  const kafka = new Kafka({ clientId: "js", brokers: process.argv[2].split(","), logLevel: logLevel.NOTHING });
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic: "kafkajs", numPartitions: 3, replicationFactor: 3 }], waitForLeaders: true });
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
    const messages = Array.from({ length: 50 }, (_, i) => ({ key: `${i}`, value: `v${i}`, headers: { codec: `${compression}` } }));
    await producer.send({ topic: "kafkajs", compression, messages });
  }
  const transactional = kafka.producer({ transactionalId: "kafkajs-txn", maxInFlightRequests: 1, idempotent: true });
  await transactional.connect();
  for (const [value, commits] of [["kept", true], ["dropped", false]]) {
    const transaction = await transactional.transaction();
    await transaction.send({ topic: "kafkajs", messages: [{ value, headers: { codec: "txn" } }] });
    await (commits ? transaction.commit() : transaction.abort());
  }
  const values = new Map();
  const headers = new Set();
  const consumers = [];
  for (let index = 0; index < 3; index++) {
    const consumer = kafka.consumer({ groupId: "kafkajs-group" });
    consumers.push(consumer);
    await consumer.connect();
    await consumer.subscribe({ topic: "kafkajs", fromBeginning: true });
    await consumer.run({
      eachMessage: async ({ partition, message }) => {
        values.set(`${partition}-${message.offset}`, message.value.toString());
        headers.add(message.headers.codec.toString());
      },
    });
  }
  const until = Date.now() + 40000;
  while (values.size < 101 && Date.now() < until) await new Promise((wake) => setTimeout(wake, 100));
  seen["consumed"] = values.size;
  seen["headers"] = [...headers].sort();
  seen["saw the aborted one"] = [...values.values()].includes("dropped");
  seen["groups"] = (await admin.listGroups()).groups.map((group) => group.groupId);
  for (const consumer of consumers) await consumer.disconnect();
  await producer.disconnect();
  await transactional.disconnect();
  seen["topics"] = (await admin.listTopics()).filter((name) => !name.startsWith("__"));
  await admin.disconnect();
  console.log(JSON.stringify(seen));
}
main().catch((error) => { console.error(error); process.exit(1); });
