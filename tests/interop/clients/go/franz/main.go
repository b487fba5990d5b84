// franz-go against a cluster: one JSON line of what it saw.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
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

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	seeds := kgo.SeedBrokers(strings.Split(os.Args[1], ",")...)
	seen := map[string]any{}

	plain := must(kgo.NewClient(seeds))
	admin := kadm.NewClient(plain)
	value := "123456"
	created := must(admin.CreateTopics(ctx, 3, 3, map[string]*string{"retention.ms": &value}, "franz", "franz-txn"))
	check(created.Error())

	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	for index, codec := range codecs {
		producer := must(kgo.NewClient(seeds, kgo.ProducerBatchCompression(codec)))
		for number := range 20 {
			producer.Produce(ctx, &kgo.Record{
				Topic: "franz", Key: fmt.Appendf(nil, "%d", number), Value: []byte(strings.Repeat("franz", 50)),
				Headers: []kgo.RecordHeader{{Key: "codec", Value: fmt.Appendf(nil, "%d", index)}},
			}, func(_ *kgo.Record, err error) { check(err) })
		}
		check(producer.Flush(ctx))
		producer.Close()
	}

	// Three members, one partition each; then all records, each once.
	members := []*kgo.Client{}
	for range 3 {
		members = append(members, must(kgo.NewClient(seeds, kgo.ConsumerGroup("franz-group"),
			kgo.ConsumeTopics("franz"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))))
	}
	places, headers := map[string]int{}, map[string]bool{}
	for len(places) < 20*len(codecs) {
		check(ctx.Err())
		for _, member := range members {
			short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
			fetches := member.PollFetches(short)
			stop()
			fetches.EachRecord(func(record *kgo.Record) {
				places[fmt.Sprintf("%d-%d", record.Partition, record.Offset)]++
				headers[string(record.Headers[0].Value)] = true
			})
		}
	}
	for {
		described := must(admin.DescribeGroups(ctx, "franz-group"))["franz-group"]
		if described.State == "Stable" && len(described.Members) == 3 {
			break
		}
		check(ctx.Err())
		time.Sleep(50 * time.Millisecond)
	}
	seen["consumed"], seen["headers"] = len(places), len(headers)
	// A partition that moved before its records were committed is read again by its new owner.
	var committed int64
	for committed < 100 {
		for _, member := range members {
			short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
			member.PollFetches(short)
			stop()
			check(member.CommitUncommittedOffsets(ctx))
		}
		committed = 0
		must(admin.FetchOffsets(ctx, "franz-group")).Each(func(offset kadm.OffsetResponse) { committed += max(0, offset.At) })
	}
	for _, member := range members {
		member.Close()
	}
	seen["committed offsets"] = committed

	transactional := must(kgo.NewClient(seeds, kgo.TransactionalID("franz-txn")))
	for _, word := range []string{"kept", "dropped", "kept too"} {
		check(transactional.BeginTransaction())
		check(transactional.ProduceSync(ctx, &kgo.Record{Topic: "franz-txn", Value: []byte(word)}).FirstErr())
		check(transactional.EndTransaction(ctx, kgo.TransactionEndTry(word != "dropped")))
	}
	transactional.Close()
	reader := must(kgo.NewClient(seeds, kgo.ConsumeTopics("franz-txn"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())))
	words := []string{}
	for len(words) < 2 {
		fetches := reader.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) { words = append(words, string(record.Value)) })
	}
	reader.Close()
	sort.Strings(words)
	seen["transactions"] = words

	configs := must(admin.DescribeTopicConfigs(ctx, "franz"))
	for _, config := range configs[0].Configs {
		if config.Key == "retention.ms" {
			seen["retention"] = config.MaybeValue()
		}
	}
	ends := must(admin.ListEndOffsets(ctx, "franz"))
	var total int64
	ends.Each(func(offset kadm.ListedOffset) { total += offset.Offset })
	seen["end offsets"] = total
	seen["brokers"] = len(must(admin.ListBrokers(ctx)))
	check(must(admin.DeleteTopics(ctx, "franz-txn")).Error())
	plain.Close()
	fmt.Println(string(must(json.Marshal(seen))))
}
