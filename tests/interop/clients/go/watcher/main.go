// A franz-go consumer of every partition of one topic, from its end, for the benchmarks: it prints "ready" when every
// broker has been asked once, and the records it has seen when its standard input ends.
//
//	watcher BOOTSTRAP TOPIC [RACK]
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.ConsumeTopics(os.Args[2]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()),
	}
	if len(os.Args) > 3 {
		options = append(options, kgo.Rack(os.Args[3]))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	var seen atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			if seen.Load() == 0 && fetches.NumRecords() > 0 {
				fmt.Println("ready")
			}
			seen.Add(int64(fetches.NumRecords()))
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	cancel()
	<-done
	fmt.Println(seen.Load())
}
