package batching_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"sheaf/batching"
	"sheaf/peer"
	"sheaf/server"
)

// One request brings a missing object's placeholder, a whole object and a range, in the
// order asked for.
func ExampleClient_GetBatch() {
	ctx := context.Background()
	endpoint, certs, stop := cluster(ctx)
	defer stop()

	id, err := peer.LoadIdentity(certs, peer.ClientName)
	if err != nil {
		log.Fatal(err)
	}
	ep, err := peer.NewEndpoint(peer.EndpointOptions{Identity: id})
	if err != nil {
		log.Fatal(err)
	}
	defer ep.Close()
	nodes, err := peer.NewClient(ctx, ep, endpoint)
	if err != nil {
		log.Fatal(err)
	}
	client := batching.NewClient(nodes)

	batch, err := client.GetBatch(ctx, &batching.Request{
		Bucket: "letters",
		Coer:   true, // what can't be had becomes a placeholder
		In: []batching.Entry{
			{ObjName: "nobody.txt"},
			{ObjName: "greeting.txt"},
			{ObjName: "greeting.txt", Start: 7, Length: 5},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer batch.Close()
	for item, err := range batch.Items() {
		if err != nil {
			log.Fatal(err)
		}
		data, err := item.Bytes()
		fmt.Printf("%d %q missing=%v\n", item.Index, data, err != nil)
	}
	fmt.Printf("%+v\n", batch.Totals())
	// Output:
	// 0 "" missing=true
	// 1 "Hello, batch!" missing=false
	// 2 "batch" missing=false
	// {OK:2 Failed:1 Bytes:18}
}

// cluster runs three nodes that hold letters/greeting.txt.
func cluster(ctx context.Context) (endpoint, certs string, stop func()) {
	dir, err := os.MkdirTemp("", "sheaf-example-")
	if err != nil {
		log.Fatal(err)
	}
	certs = dir + "/certs"
	for _, err := range []error{
		peer.InitCA(certs),
		peer.Issue(certs, certs, peer.NodeName, "node", peer.NodeRole),
		peer.Issue(certs, certs, peer.ClientName, "writer", peer.Writer),
	} {
		if err != nil {
			log.Fatal(err)
		}
	}
	id, err := peer.LoadIdentity(certs, peer.NodeName)
	if err != nil {
		log.Fatal(err)
	}
	local, err := server.StartLocal(ctx, server.LocalOptions{Nodes: 3, Dir: dir, Listen: "127.0.0.1:0", Identity: id})
	if err != nil {
		log.Fatal(err)
	}
	writer, err := peer.LoadIdentity(certs, peer.ClientName)
	if err != nil {
		log.Fatal(err)
	}
	ep, err := peer.NewEndpoint(peer.EndpointOptions{Identity: writer})
	if err != nil {
		log.Fatal(err)
	}
	defer ep.Close()
	c, err := peer.NewClient(ctx, ep, local.Endpoint())
	if err == nil {
		err = c.CreateBucket(ctx, "letters", peer.BucketProps{})
	}
	if err == nil {
		_, err = c.Put(ctx, "letters", "greeting.txt", strings.NewReader("Hello, batch!"), peer.PutOptions{Size: 13})
	}
	if err != nil {
		log.Fatal(err)
	}
	return local.Endpoint(), certs, func() {
		_ = local.Close()
		_ = os.RemoveAll(dir)
	}
}
