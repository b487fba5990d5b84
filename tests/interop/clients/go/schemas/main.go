// franz-go's schema registry client against the registry of the nodes; prints one JSON object with what it saw.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
)

const (
	avro  = `{"type":"record","name":"A","fields":[{"name":"x","type":"int"}]}`
	wider = `{"type":"record","name":"A","fields":[{"name":"x","type":"long"}]}`
	other = `{"type":"record","name":"A","fields":[{"name":"x","type":"string"}]}`
	place = `syntax = "proto3"; package p; message Place { string name = 1; }`
	trip  = `syntax = "proto3"; package p; import "place.proto"; message Trip { Place to = 1; }`
)

func check[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

type record struct {
	X int `json:"x"`
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	first := check(sr.NewClient(sr.URLs(os.Args[1])))
	last := check(sr.NewClient(sr.URLs(os.Args[len(os.Args)-1])))
	seen := map[string]any{}

	types := []string{}
	for _, each := range check(first.SupportedTypes(ctx)) {
		types = append(types, each.String())
	}
	sort.Strings(types)
	seen["types"] = types
	made := check(first.CreateSchema(ctx, "go-value", sr.Schema{Schema: avro}))
	again := check(last.CreateSchema(ctx, "go-value", sr.Schema{Schema: avro}))
	seen["same id elsewhere"] = made.ID == again.ID
	fits := check(first.CheckCompatibility(ctx, "go-value", -1, sr.Schema{Schema: other}))
	seen["fits"] = []bool{check(first.CheckCompatibility(ctx, "go-value", -1, sr.Schema{Schema: wider})).Is, fits.Is}
	check(last.CreateSchema(ctx, "go-value", sr.Schema{Schema: wider}))
	_, err := last.CreateSchema(ctx, "go-value", sr.Schema{Schema: other})
	var refused *sr.ResponseError
	if errors.As(err, &refused) {
		seen["incompatible"] = refused.ErrorCode
	}
	seen["versions"] = check(first.SubjectVersions(ctx, "go-value"))
	seen["lookup"] = check(first.LookupSchema(ctx, "go-value", sr.Schema{Schema: avro})).Version
	seen["by id"] = check(last.SchemaByID(ctx, made.ID)).Schema == avro
	level := last.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFullTransitive}, "go-value")[0]
	check(level, level.Err)
	level = first.Compatibility(ctx, "go-value")[0]
	seen["level"] = check(level, level.Err).Level.String()
	mode := first.Mode(ctx)[0]
	seen["mode"] = check(mode, mode.Err).Mode.String()

	check(first.CreateSchema(ctx, "place.proto", sr.Schema{Schema: place, Type: sr.TypeProtobuf}))
	imports := []sr.SchemaReference{{Name: "place.proto", Subject: "place.proto", Version: 1}}
	check(last.CreateSchema(ctx, "trip-value", sr.Schema{Schema: trip, Type: sr.TypeProtobuf, References: imports}))
	users := check(first.SchemaReferences(ctx, "place.proto", 1))
	seen["references"] = []any{len(users), users[0].Subject}
	_, err = first.DeleteSubject(ctx, "place.proto", sr.SoftDelete)
	if errors.As(err, &refused) {
		seen["referred to"] = refused.ErrorCode
	}

	var serde sr.Serde
	serde.Register(made.ID, record{}, sr.EncodeFn(json.Marshal), sr.DecodeFn(json.Unmarshal))
	var back record
	if err := serde.Decode(serde.MustEncode(record{X: 7}), &back); err == nil {
		seen["serde"] = back.X
	}

	seen["deleted"] = check(first.DeleteSubject(ctx, "trip-value", sr.SoftDelete))
	seen["deleted for ever"] = check(first.DeleteSubject(ctx, "trip-value", sr.HardDelete))
	seen["subjects"] = check(last.Subjects(ctx))
	fmt.Println(string(check(json.Marshal(seen))))
}
