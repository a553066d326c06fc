package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/zeebo/xxh3"

	"sheaf/batching"
	"sheaf/bench/run"
)

// expected is what one entry of a batch must bring.
type expected struct {
	data    []byte
	missing bool
}

// mixture is a manifest of everything that an entry can be, with what must come of it.
type mixture struct {
	req  *batching.Request
	want []expected
	gone int // the entry that names nothing
}

// makeMixture draws 120 objects, 120 members and 60 ranges of both, names one of the
// objects twice, and puts the empty object and a missing one in between.
func makeMixture(files []source, rnd *rand.Rand) *mixture {
	m := &mixture{req: &batching.Request{ID: "mixed", Coer: true}}
	add := func(e batching.Entry, data []byte) {
		m.req.In = append(m.req.In, e)
		m.want = append(m.want, expected{data: data})
	}
	object := func(i int) batching.Entry { return batching.Entry{Bucket: filesBucket, ObjName: files[i].name} }
	member := func(i int) batching.Entry {
		return batching.Entry{Bucket: shardsBucket, ObjName: shardName(i / shardMembers), ArchPath: files[i].name}
	}
	part := func(e batching.Entry, data []byte) {
		e.Start = rnd.Int64N(int64(len(data)))
		e.Length = 1 + rnd.Int64N(int64(len(data))-e.Start)
		add(e, data[e.Start:e.Start+e.Length])
	}
	for range 120 {
		i, j := rnd.IntN(len(files)), rnd.IntN(len(files))
		add(object(i), files[i].data)
		add(member(j), files[j].data)
		if k := rnd.IntN(len(files)); k%4 == 0 {
			part(object(k), files[k].data)
		} else if k%4 == 1 {
			part(member(k), files[k].data)
		}
	}
	add(m.req.In[0], m.want[0].data)
	add(batching.Entry{Bucket: filesBucket, ObjName: emptyObject}, nil)
	rnd.Shuffle(len(m.want), func(i, j int) {
		m.want[i], m.want[j] = m.want[j], m.want[i]
		m.req.In[i], m.req.In[j] = m.req.In[j], m.req.In[i]
	})
	m.gone = len(m.want) / 2
	m.req.In = append(m.req.In[:m.gone:m.gone], append([]batching.Entry{{Bucket: filesBucket, ObjName: "no/such.file"}}, m.req.In[m.gone:]...)...)
	m.want = append(m.want[:m.gone:m.gone], append([]expected{{missing: true}}, m.want[m.gone:]...)...)
	return m
}

// data is what the batch's data must be.
func (m *mixture) data() []byte {
	var all []byte
	for _, w := range m.want {
		all = append(all, w.data...)
	}
	return all
}

// mixed sends one manifest of many kinds of entries and checks every file of the batch.
func (d *demo) mixed(ctx context.Context) error {
	m := makeMixture(d.src.files, rand.New(rand.NewPCG(3, 3)))
	fmt.Printf("\nOne manifest of %d entries: objects, shard members, ranges of both, one twice, one empty, one missing (coer):\n", len(m.want))
	s, err := d.mount.OpenSession()
	if err != nil {
		return err
	}
	defer s.Close()
	text, err := json.Marshal(m.req)
	if err != nil {
		return err
	}
	if err := s.Write(text); err != nil {
		return err
	}
	if err := m.events(s); err != nil {
		return err
	}
	want := m.data()
	got, err := run.ReadFile(d.mount.Batch(m.req.ID, "data"), nil)
	if err != nil {
		return err
	}
	if err := same("the mixed batch's data", got, want); err != nil {
		return err
	}
	sum := sha256.Sum256(got)
	fmt.Printf("  data      %d bytes in the order of the manifest, sha256 %x… as that of the sources\n", len(got), sum[:8])
	for _, check := range []func(run.Mount) error{m.checkIndex, m.checkEntries} {
		if err := check(d.mount); err != nil {
			return err
		}
	}
	archive, err := run.ReadFile(d.mount.Batch(m.req.ID, "tar"), nil)
	if err != nil {
		return err
	}
	if err := m.checkTar(archive); err != nil {
		return err
	}
	if err := m.listTar(ctx, d.mount); err != nil {
		return err
	}
	if err := os.WriteFile(d.home.Path("mixed.json"), text, 0o644); err != nil {
		return err
	}
	raw, err := d.home.Sheaf(ctx, "batch", "--quiet", d.home.Path("mixed.json"))
	if err != nil {
		return err
	}
	if err := same("the archive of `sheaf batch`", raw, archive); err != nil {
		return err
	}
	fmt.Println("  `sheaf batch` of the same manifest, over QUIC without the mount, gave the same archive byte for byte.")
	return s.Release(m.req.ID)
}

// events prints a session's lines as they come, most of the ready ones left out, and
// checks them.
func (m *mixture) events(s *run.Session) error {
	next, failed, left := 0, 0, 0
	for n := 0; ; n++ {
		e, err := s.Next()
		if err != nil {
			return err
		}
		switch e.Event {
		case "ready":
			if e.From != next || e.To < e.From {
				return fmt.Errorf("event %s where entry %d is due", e.Line, next)
			}
			next = e.To + 1
		case "error":
			if e.I == nil || *e.I != m.gone || e.Errno != "ENOENT" {
				return fmt.Errorf("event %s, and only entry %d is missing", e.Line, m.gone)
			}
			failed++
		}
		if n < 3 || e.Event != "ready" {
			if left > 0 {
				fmt.Printf("  …         (%d ready events)\n", left)
				left = 0
			}
			fmt.Println("  event    ", cut(e.Line, 120))
		} else {
			left++
		}
		if e.Event != "done" {
			continue
		}
		if e.OK != len(m.want)-1 || e.Err != 1 || failed != 1 || next != len(m.want) || e.Bytes != int64(len(m.data())) {
			return fmt.Errorf("event %s: want %d entries, 1 failed, %d bytes; the events before it told of %d entries and %d failed", e.Line, len(m.want), len(m.data()), next, failed)
		}
		return nil
	}
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// checkIndex reads the table as docs/mount.md has it.
func (m *mixture) checkIndex(mnt run.Mount) error {
	b, err := run.ReadFile(mnt.Batch(m.req.ID, "index"), nil)
	if err != nil {
		return err
	}
	if len(b) != 64+32*len(m.want) || string(b[:8]) != "SHEAFIX1" || binary.LittleEndian.Uint64(b[16:]) != uint64(len(m.want)) {
		return fmt.Errorf("the index has %d bytes and begins with %q", len(b), b[:min(8, len(b))])
	}
	var off uint64
	for i, w := range m.want {
		row := b[64+32*i:]
		at, n, sum := binary.LittleEndian.Uint64(row), binary.LittleEndian.Uint64(row[8:]), binary.LittleEndian.Uint64(row[16:])
		errno := syscall.Errno(binary.LittleEndian.Uint32(row[28:]))
		switch {
		case w.missing && errno != syscall.ENOENT:
			return fmt.Errorf("index: entry %d is missing and has errno %d", i, errno)
		case !w.missing && (at != off || n != uint64(len(w.data)) || sum != xxh3.Hash(w.data) || errno != 0):
			return fmt.Errorf("index: entry %d: offset %d, length %d, checksum %x, errno %d; want %d, %d, %x, 0", i, at, n, sum, errno, off, len(w.data), xxh3.Hash(w.data))
		}
		off += uint64(len(w.data))
	}
	fmt.Printf("  index     %d rows: offsets, lengths and checksums are right\n", len(m.want))
	return nil
}

// checkEntries opens each entry as a file.
func (m *mixture) checkEntries(mnt run.Mount) error {
	for i, w := range m.want {
		name := fmt.Sprintf("%06d", i)
		got, err := run.ReadFile(mnt.Batch(m.req.ID, "entries", name), nil)
		switch {
		case w.missing && !errors.Is(err, syscall.ENOENT):
			return fmt.Errorf("entries/%s is missing and opening it gives %v", name, err)
		case w.missing:
			fmt.Printf("  entries   %d files as they must be; entries/%s is the missing one: %v\n", len(m.want)-1, name, syscall.ENOENT)
		case err != nil:
			return err
		default:
			if err := same("entries/"+name, got, w.data); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkTar reads the archive.
func (m *mixture) checkTar(archive []byte) error {
	r := tar.NewReader(bytes.NewReader(archive))
	for i, w := range m.want {
		h, err := r.Next()
		if err != nil {
			return fmt.Errorf("tar, entry %d: %w", i, err)
		}
		if name := batching.ArchiveName(&m.req.In[i], false, w.missing); h.Name != name {
			return fmt.Errorf("tar, entry %d: name %q, want %q", i, h.Name, name)
		}
		got, err := io.ReadAll(r)
		if err != nil {
			return fmt.Errorf("tar, entry %d: %w", i, err)
		}
		if err := same("tar, "+h.Name, got, w.data); err != nil {
			return err
		}
	}
	if h, err := r.Next(); err != io.EOF {
		return fmt.Errorf("tar: after the last entry %v %v", h, err)
	}
	return nil
}

// listTar shows what tar(1) says of the archive in the mount.
func (m *mixture) listTar(ctx context.Context, mnt run.Mount) error {
	out, err := exec.CommandContext(ctx, "tar", "tf", mnt.Batch(m.req.ID, "tar")).Output()
	if err != nil {
		return fmt.Errorf("tar tf: %w", err)
	}
	names := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(names) != len(m.want) {
		return fmt.Errorf("tar tf lists %d names, want %d", len(names), len(m.want))
	}
	fmt.Printf("  tar tf MNT/.sheaf/batch/%s/tar, %d names and their bytes checked:\n", m.req.ID, len(names))
	for _, n := range names[:3] {
		fmt.Println("   ", n)
	}
	fmt.Printf("    …\n    %s   (the placeholder)\n    …\n", names[m.gone])
	return nil
}
