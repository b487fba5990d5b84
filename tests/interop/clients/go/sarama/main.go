// sarama against a cluster: one JSON line of what it saw.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

type handler struct {
	sync.Mutex
	places  map[string]bool
	headers map[string]bool
	done    chan struct{}
	wanted  int
}

func (h *handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			session.MarkMessage(message, "")
			h.Lock()
			h.places[fmt.Sprintf("%d-%d", message.Partition, message.Offset)] = true
			h.headers[string(message.Headers[0].Value)] = true
			if len(h.places) == h.wanted {
				close(h.done)
				h.wanted = -1
			}
			h.Unlock()
		case <-session.Context().Done():
			return nil
		}
	}
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.V3_6_0_0
	made.Producer.Return.Successes = true
	made.Producer.Idempotent = true
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Net.MaxOpenRequests = 1
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	return made
}

func main() {
	brokers := strings.Split(os.Args[1], ",")
	seen := map[string]any{}
	admin := must(sarama.NewClusterAdmin(brokers, config()))
	check(admin.CreateTopic("sarama", &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 3}, false))
	check(admin.CreateTopic("sarama-txn", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 3}, false))

	codecs := []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
	}
	for _, codec := range codecs {
		settings := config()
		settings.Producer.Compression = codec
		producer := must(sarama.NewSyncProducer(brokers, settings))
		messages := []*sarama.ProducerMessage{}
		for number := range 20 {
			messages = append(messages, &sarama.ProducerMessage{
				Topic: "sarama", Key: sarama.StringEncoder(fmt.Sprint(number)), Value: sarama.StringEncoder(strings.Repeat("sarama", 50)),
				Headers: []sarama.RecordHeader{{Key: []byte("codec"), Value: []byte(codec.String())}},
			})
		}
		check(producer.SendMessages(messages))
		check(producer.Close())
	}

	shared := &handler{places: map[string]bool{}, headers: map[string]bool{}, done: make(chan struct{}), wanted: 100}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	members := []sarama.ConsumerGroup{}
	var running sync.WaitGroup
	for range 3 {
		group := must(sarama.NewConsumerGroup(brokers, "sarama-group", config()))
		members = append(members, group)
		running.Add(1)
		go func() {
			defer running.Done()
			for ctx.Err() == nil {
				if err := group.Consume(ctx, []string{"sarama"}, shared); err != nil {
					return
				}
			}
		}()
	}
	select {
	case <-shared.done:
	case <-ctx.Done():
	}
	for {
		described := must(admin.DescribeConsumerGroups([]string{"sarama-group"}))
		if described[0].State == "Stable" && len(described[0].Members) == 3 {
			break
		}
		check(ctx.Err())
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	running.Wait()
	for _, member := range members {
		check(member.Close())
	}
	seen["consumed"], seen["headers"] = len(shared.places), len(shared.headers)
	var committed int64
	for _, partitions := range must(admin.ListConsumerGroupOffsets("sarama-group", nil)).Blocks {
		for _, block := range partitions {
			committed += block.Offset
		}
	}
	seen["committed offsets"] = committed

	settings := config()
	settings.Producer.Transaction.ID = "sarama-txn"
	transactional := must(sarama.NewSyncProducer(brokers, settings))
	for _, word := range []string{"kept", "dropped", "kept too"} {
		check(transactional.BeginTxn())
		_, _, err := transactional.SendMessage(&sarama.ProducerMessage{Topic: "sarama-txn", Value: sarama.StringEncoder(word)})
		check(err)
		if word == "dropped" {
			check(transactional.AbortTxn())
		} else {
			check(transactional.CommitTxn())
		}
	}
	check(transactional.Close())
	reading := config()
	reading.Consumer.IsolationLevel = sarama.ReadCommitted
	consumer := must(sarama.NewConsumer(brokers, reading))
	partition := must(consumer.ConsumePartition("sarama-txn", 0, sarama.OffsetOldest))
	words := []string{}
	for len(words) < 2 {
		select {
		case message := <-partition.Messages():
			words = append(words, string(message.Value))
		case <-time.After(20 * time.Second):
			panic("no committed message came")
		}
	}
	seen["transactions"] = words
	check(partition.Close())
	check(consumer.Close())
	described, _, err := admin.DescribeCluster()
	check(err)
	seen["brokers"] = len(described)
	check(admin.DeleteTopic("sarama-txn"))
	check(admin.Close())
	fmt.Println(string(must(json.Marshal(seen))))
}
