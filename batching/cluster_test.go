package batching_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"sheaf/batching"
	"sheaf/internal/testcluster"
)

func TestSmoke(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{})
	c.Bucket(t, "b")
	want := map[string][]byte{}
	req := &batching.Request{Bucket: "b"}
	for i := range 200 {
		name := fmt.Sprintf("o%03d", i)
		data := make([]byte, rand.IntN(500_000))
		for j := range data {
			data[j] = byte(rand.Int())
		}
		want[name] = data
		c.Put(t, "b", name, data)
		req.In = append(req.In, batching.Entry{ObjName: name})
	}
	s, err := c.Batch.GetBatch(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	n := 0
	for it, err := range s.Items() {
		if err != nil {
			t.Fatal(err)
		}
		b, err := it.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, want[it.Entry.ObjName]) || it.Index != n {
			t.Fatalf("entry %d %s differs", it.Index, it.Entry.ObjName)
		}
		n++
	}
	t.Log(n, s.Totals())
}
