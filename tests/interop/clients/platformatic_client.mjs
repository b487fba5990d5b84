// @platformatic/kafka, which speaks flexible versions and topic ids only: one JSON line of what it saw.
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from "@platformatic/kafka";

const bootstrapBrokers = process.argv[2].split(",");
const admin = new Admin({ clientId: "admin", bootstrapBrokers });
await admin.createTopics({ topics: ["platformatic"], partitions: 2, replicas: 3 });
const producer = new Producer({ clientId: "producer", bootstrapBrokers, serializers: stringSerializers, idempotent: true });
for (let index = 0; index < 20; index++) await producer.send({ messages: [{ topic: "platformatic", key: `k${index}`, value: `v${index}` }] });
const consumer = new Consumer({ groupId: "platformatic-group", clientId: "consumer", bootstrapBrokers, deserializers: stringDeserializers });
const stream = await consumer.consume({ autocommit: true, topics: ["platformatic"], mode: "earliest" });
const values = [];
for await (const message of stream) {
  values.push(message.value);
  if (values.length === 20) break;
}
await consumer.close(true);
await producer.close();
await admin.close();
console.log(JSON.stringify({ consumed: values.length, distinct: new Set(values).size }));
process.exit(0);
