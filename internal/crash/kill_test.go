package crash

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sheaf/batching"
	"sheaf/internal/errs"
	"sheaf/peer"
)

var (
	seed     = flag.Uint64("seed", 0, "of all choices; 0: a new one")
	duration = flag.Duration("duration", 30*time.Second, "how long nodes are killed")
	workers  = flag.Int("workers", 3, "writers; as many readers and half as many batches go on beside them")
	names    = flag.Int("names", 60, "object names of each writer")
)

const bucket = "crash"

// run is one test under way.
type run struct {
	t     *testing.T
	c     *cluster
	seed  uint64
	names []*name // of all workers

	nextID atomic.Uint64
	ops    [4]counter // by kind
	failed atomic.Bool
}

// counter counts calls and those that failed because nodes were down.
type counter struct{ done, unsure atomic.Int64 }

const (
	opWrite = iota
	opDelete
	opRead
	opBatch
)

var opNames = [...]string{"writes", "deletes", "reads", "batches"}

// fault reports a broken promise; the test goes on for others to show.
func (r *run) fault(format string, args ...any) {
	r.failed.Store(true)
	r.t.Errorf(format, args...)
}

// down tells whether an error may come of a node that was killed.
func down(err error) bool {
	switch errs.CodeOf(err) {
	case errs.Unavailable, errs.Timeout, errs.Canceled, errs.TooManyRequests:
		return true
	}
	return false
}

// TestKill kills one node after the other, now and then all at once, under a mixed load.
func TestKill(t *testing.T) {
	r := &run{t: t, seed: *seed}
	if r.seed == 0 {
		r.seed = rand.Uint64()
	}
	t.Logf("-seed %d -duration %v -workers %d -names %d", r.seed, *duration, *workers, *names)
	r.c = startCluster(t, 3)
	if err := r.c.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.c.peer.CreateBucket(t.Context(), bucket, peer.BucketProps{Copies: 2}); err != nil {
		t.Fatal(err)
	}
	owned := make([][]*name, *workers)
	for w := range owned {
		for i := range *names {
			n := newName(fmt.Sprintf("w%d/dir%d/%03d", w, i%7, i), i%3 == 0)
			owned[w] = append(owned[w], n)
			r.names = append(r.names, n)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var busy sync.WaitGroup
	for w := range owned {
		busy.Go(func() { r.write(ctx, stream(r.seed, fmt.Sprint("writer", w)), owned[w]) })
		busy.Go(func() { r.read(ctx, stream(r.seed, fmt.Sprint("reader", w))) })
	}
	for w := range (*workers + 1) / 2 {
		busy.Go(func() { r.batch(ctx, stream(r.seed, fmt.Sprint("batch", w))) })
	}
	kills := r.killer(ctx, stream(r.seed, "killer"))
	stop()
	busy.Wait()
	for i, what := range opNames {
		t.Logf("%s: %d done, %d unsure", what, r.ops[i].done.Load(), r.ops[i].unsure.Load())
		if r.ops[i].done.Load() == 0 {
			t.Errorf("no %s went through", what)
		}
	}
	t.Logf("%d kills", kills)
	r.checkAll("after the kills")

	// All at once: what is acknowledged is on the disks.
	for _, p := range r.c.nodes {
		p.kill()
	}
	r.upAll()
	if left, err := r.c.workFiles(); err != nil || len(left) > 0 {
		t.Errorf("work files survived a start: %q %v", left, err)
	}
	r.checkAll("after the end of all")
}

// killer kills and restarts nodes until the time is over, and gives the number of kills.
func (r *run) killer(ctx context.Context, rnd *rand.Rand) (kills int) {
	for end := time.Now().Add(*duration); time.Now().Before(end) && !r.failed.Load(); {
		pause(ctx, rnd, 1500*time.Millisecond)
		victims := []*process{r.c.nodes[rnd.IntN(len(r.c.nodes))]}
		if rnd.IntN(6) == 0 {
			victims = r.c.nodes
		}
		for _, p := range victims {
			p.kill()
			kills++
		}
		// Sometimes it is back before anyone noticed, sometimes long after.
		if rnd.IntN(2) == 0 {
			pause(ctx, rnd, 200*time.Millisecond)
		} else {
			pause(ctx, rnd, 12*time.Second)
		}
		if rnd.IntN(3) == 0 {
			// Killed again while it comes up.
			for _, p := range victims {
				if _, err := p.start(); err != nil {
					r.t.Fatal(err)
				}
			}
			pause(ctx, rnd, 400*time.Millisecond)
			for _, p := range victims {
				p.kill()
				kills++
			}
		}
		r.upAll(victims...)
		// Two copies bear the loss of one node; the next is killed when they are whole again.
		if err := r.c.settle(ctx); err != nil {
			r.fault("the cluster doesn't settle: %v", err)
			return kills
		}
	}
	return kills
}

func pause(ctx context.Context, rnd *rand.Rand, most time.Duration) {
	t := time.NewTimer(rand.N(most)/2 + time.Duration(rnd.Int64N(int64(most)))/2)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// upAll starts nodes, all without a list, and waits until they serve.
func (r *run) upAll(list ...*process) {
	if len(list) == 0 {
		list = r.c.nodes
	}
	var wg sync.WaitGroup
	var bad atomic.Pointer[error]
	for _, p := range list {
		wg.Go(func() {
			if err := r.c.up(p); err != nil {
				bad.Store(&err)
			}
		})
	}
	wg.Wait()
	if err := bad.Load(); err != nil {
		r.t.Fatal(*err)
	}
}

// call bounds one call.
func call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, hang/3)
}

// write changes the names that belong to one writer.
func (r *run) write(ctx context.Context, rnd *rand.Rand, mine []*name) {
	for ctx.Err() == nil {
		n := mine[rnd.IntN(len(mine))]
		switch k := rnd.IntN(10); {
		case k < 6 || n.kept:
			r.put(ctx, n)
		case k < 8:
			r.delete(ctx, n)
		default:
			to := mine[rnd.IntN(len(mine))]
			if id, sure := n.certain(); sure && id != absent && to != n {
				r.rename(ctx, n, to, id)
			}
		}
	}
}

// finish books an attempt's outcome.
func (r *run) finish(ctx context.Context, op int, n *name, i int, err error) {
	switch {
	case err == nil:
		r.ops[op].done.Add(1)
		n.ack(i)
	case down(err):
		r.ops[op].unsure.Add(1)
	case ctx.Err() == nil:
		r.fault("%s: %v", n.key, err)
	}
}

func (r *run) put(ctx context.Context, n *name) {
	id := r.nextID.Add(1)
	data := payload(id)
	i := n.begin(id)
	one, cancel := call(ctx)
	defer cancel()
	_, err := r.c.peer.Put(one, bucket, n.key, bytes.NewReader(data), peer.PutOptions{Size: int64(len(data))})
	r.finish(ctx, opWrite, n, i, err)
}

func (r *run) delete(ctx context.Context, n *name) {
	id, sure := n.certain()
	i := n.begin(absent)
	one, cancel := call(ctx)
	defer cancel()
	err := r.c.peer.Delete(one, bucket, n.key)
	if errs.IsCode(err, errs.NotFound) {
		if sure && id != absent {
			r.fault("%s: deleting it found nothing, payload %d was acknowledged", n.key, id)
		}
		// Nothing was there. An attempt of which nobody knows may still come to light, so
		// that this can't be counted as done.
		if sure {
			n.undo(i)
		}
		return
	}
	r.finish(ctx, opDelete, n, i, err)
}

func (r *run) rename(ctx context.Context, from, to *name, id uint64) {
	// The target has it before the source is gone.
	ti := to.begin(id)
	fi := from.begin(absent)
	one, cancel := call(ctx)
	defer cancel()
	_, err := r.c.peer.Rename(one, peer.ObjectName{Bucket: bucket, Object: from.key}, peer.ObjectName{Bucket: bucket, Object: to.key}, peer.CopyOptions{})
	r.finish(ctx, opWrite, to, ti, err)
	if err == nil {
		from.ack(fi)
	}
}

// see checks what a read gave.
func (r *run) see(n *name, floor int, data []byte, err error) {
	switch {
	case err == nil:
		id, err := identify(data)
		if err == nil {
			err = n.allows(floor, id)
		}
		if err != nil {
			r.fault("%s: %v", n.key, err)
		}
	case errs.IsCode(err, errs.NotFound):
		if err := n.allows(floor, absent); err != nil {
			r.fault("%v", err)
		}
	}
}

func (r *run) get(ctx context.Context, n *name) ([]byte, error) {
	one, cancel := call(ctx)
	defer cancel()
	_, body, err := r.c.peer.Get(one, bucket, n.key, peer.GetOptions{})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

// read reads any names one by one.
func (r *run) read(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		n := r.names[rnd.IntN(len(r.names))]
		floor := n.floor()
		data, err := r.get(ctx, n)
		switch {
		case err == nil || errs.IsCode(err, errs.NotFound):
			r.ops[opRead].done.Add(1)
		case down(err), errs.IsCode(err, errs.VersionMismatch): // replaced when its holder was killed in mid-read
			r.ops[opRead].unsure.Add(1)
		case ctx.Err() == nil:
			r.fault("%s: %v", n.key, err)
		}
		r.see(n, floor, data, err)
	}
}

// batch reads many names at once.
func (r *run) batch(ctx context.Context, rnd *rand.Rand) {
	client := batching.NewClient(r.c.peer)
	for ctx.Err() == nil {
		list := make([]*name, 48)
		floors := make([]int, len(list))
		req := &batching.Request{Bucket: bucket, Coer: true, MaxSoftErrors: -1}
		for i := range list {
			list[i] = r.names[rnd.IntN(len(r.names))]
			floors[i] = list[i].floor()
			req.In = append(req.In, batching.Entry{ObjName: list[i].key})
		}
		err := r.batchOnce(ctx, client, req, list, floors)
		switch {
		case err == nil:
			r.ops[opBatch].done.Add(1)
		case down(err), overtaken(err, list, floors):
			r.ops[opBatch].unsure.Add(1)
		case ctx.Err() == nil:
			r.fault("batch: %v", err)
		}
	}
}

// overtaken tells whether a batch ended because an entry was cut within when its sender was
// killed, and its object was deleted or replaced before another holder could go on with it.
func overtaken(err error, list []*name, floors []int) bool {
	if errs.IsCode(err, errs.VersionMismatch) {
		return true
	}
	return errs.IsCode(err, errs.NotFound) && slices.ContainsFunc(list, func(n *name) bool {
		return n.key == errs.Flatten(err).Object && n.allows(floors[slices.Index(list, n)], absent) == nil
	})
}

func (r *run) batchOnce(ctx context.Context, client *batching.Client, req *batching.Request, list []*name, floors []int) error {
	one, cancel := call(ctx)
	defer cancel()
	s, err := client.GetBatch(one, req)
	if err != nil {
		return err
	}
	defer s.Close()
	for it, err := range s.Items() {
		if err != nil {
			return err
		}
		var data []byte
		if it.Err == nil {
			if data, err = it.Bytes(); err != nil {
				return err
			}
		} else if !down(it.Err) && !errs.IsCode(it.Err, errs.NotFound) {
			r.fault("batch, %s: %v", list[it.Index].key, it.Err)
		}
		r.see(list[it.Index], floors[it.Index], data, it.Err)
	}
	return nil
}

// checkAll compares all names, in full, with the model when all nodes are there.
func (r *run) checkAll(when string) {
	r.t.Helper()
	ctx := r.t.Context()
	if err := r.c.settle(ctx); err != nil {
		r.t.Fatalf("%s: %v", when, err)
	}
	var present []string
	for _, n := range r.names {
		data, err := r.get(ctx, n)
		switch {
		case err == nil:
			present = append(present, n.key)
		case !errs.IsCode(err, errs.NotFound):
			r.fault("%s: %s: %v", when, n.key, err)
		}
		r.see(n, n.floor(), data, err)
	}
	slices.Sort(present)
	page, err := r.c.peer.List(ctx, bucket, peer.ListOptions{})
	if err != nil {
		r.t.Fatalf("%s: list: %v", when, err)
	}
	var listed []string
	for _, o := range page.Objects {
		listed = append(listed, o.Name)
	}
	if !slices.Equal(listed, present) {
		r.fault("%s: %d objects can be read, %d are listed: %q", when, len(present), len(listed), difference(present, listed))
	}
	// Each on two nodes.
	holders := map[string]int{}
	for _, p := range r.c.nodes {
		page, err := r.c.peer.ListAt(ctx, p.addr(), bucket, peer.ListOptions{})
		if err != nil {
			r.t.Fatalf("%s: list %s: %v", when, p.name, err)
		}
		for _, o := range page.Objects {
			holders[o.Name]++
		}
	}
	for _, key := range present {
		if holders[key] != 2 {
			r.fault("%s: %s lies on %d nodes, want 2", when, key, holders[key])
		}
	}
	r.t.Logf("%s: %d objects, all as they must be", when, len(present))
}

func difference(a, b []string) (out []string) {
	for _, s := range a {
		if !slices.Contains(b, s) {
			out = append(out, "-"+s)
		}
	}
	for _, s := range b {
		if !slices.Contains(a, s) {
			out = append(out, "+"+s)
		}
	}
	return out
}
