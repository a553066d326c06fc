package fusefs

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"sheaf/batching"
	"sheaf/internal/errs"
)

// sampleCluster has objects of many sizes and a shard.
func sampleCluster(t *testing.T) *fakeCluster {
	c := newFakeCluster()
	for i, size := range []int{0, 1, 511, 512, 513, 4096, 100_000, 3 << 20} {
		name := fmt.Sprintf("o%d", i)
		c.put("b", name, bytesOf(name, size))
	}
	c.put("b", strings.Repeat("long/", 60)+"name", bytesOf("long", 700))
	c.putShard(t, "b", "s.tar", "m1", "member one", "d/m2", "member two")
	return c
}

const sampleManifest = `{"id":"x","bucket":"b","in":[
 {"objname":"o1"},{"objname":"o0"},{"objname":"o7"},{"objname":"s.tar","archpath":"d/m2"},{"objname":"o1"},
 {"objname":"o6","start":1000,"length":5000},{"objname":"o6","start":99999,"length":-1},{"objname":"s.tar","archpath":"m1","start":7,"length":3},
 {"objname":"o2"},{"objname":"o3"},{"objname":"o4"},{"objname":"LONG"}]}`

// samplePayloads are what the manifest brings.
func samplePayloads(c *fakeCluster) [][]byte {
	o := func(name string) []byte { return c.buckets["b"][name].data }
	return [][]byte{
		o("o1"), o("o0"), o("o7"), []byte("member two"), o("o1"), o("o6")[1000:6000], o("o6")[99999:], []byte("one"),
		o("o2"), o("o3"), o("o4"), o(strings.Repeat("long/", 60) + "name"),
	}
}

func TestBatchByEcho(t *testing.T) {
	c := sampleCluster(t)
	m := newMount(t, c, nil)
	manifest := strings.ReplaceAll(strings.ReplaceAll(sampleManifest, "\n", " "), "LONG", strings.Repeat("long/", 60)+"name")
	m.sh(`echo '` + manifest + `' > $S/control`)
	equal(t, m.sh("ls $S/batch; ls $S/batch/x; ls $S/batch/x/entries | tr '\n' ' '"),
		"x\ndata\nentries\nindex\nmanifest\nstatus\ntar\n000000 000001 000002 000003 000004 000005 000006 000007 000008 000009 000010 000011")

	var data, index, archive []byte
	index = append(index, "SHEAFIX1"...)
	index = binary.LittleEndian.AppendUint32(index, 64)
	index = binary.LittleEndian.AppendUint32(index, 32)
	index = binary.LittleEndian.AppendUint64(index, 12)
	index = append(index, make([]byte, 40)...)
	var req batching.Request
	if err := json.Unmarshal([]byte(manifest), &req); err != nil {
		t.Fatal(err)
	}
	if err := req.Normalize(); err != nil {
		t.Fatal(err)
	}
	for i, p := range samplePayloads(c) {
		index = binary.LittleEndian.AppendUint64(index, uint64(len(data)))
		index = binary.LittleEndian.AppendUint64(index, uint64(len(p)))
		index = binary.LittleEndian.AppendUint64(index, xxh3.Hash(p))
		index = append(index, make([]byte, 8)...)
		data = append(data, p...)
		h, err := batching.TarHeader(batching.ArchiveName(&req.In[i], false, false), int64(len(p)))
		if err != nil {
			t.Fatal(err)
		}
		archive = append(append(append(archive, h...), p...), make([]byte, batching.TarPadding(int64(len(p))))...)
	}
	archive = append(archive, make([]byte, batching.TarTrailer)...)
	want := t.TempDir()
	for name, b := range map[string][]byte{"data": data, "index": index, "tar": archive} {
		if err := os.WriteFile(filepath.Join(want, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"data", "index", "tar"} {
		script := strings.ReplaceAll(`cmp $S/batch/x/N W/N && T=$(mktemp) && cp $S/batch/x/N $T && cmp $T W/N && rm $T &&
			test $(stat -c %s $S/batch/x/N) = $(stat -c %s W/N) &&
			for bs in 7 1000 65536; do dd if=$S/batch/x/N bs=$bs skip=3 count=9 status=none | cmp - <(dd if=W/N bs=$bs skip=3 count=9 status=none); done`, "N", name)
		m.sh("set -e; " + strings.ReplaceAll(script, "W/", want+"/"))
	}
	for i, p := range samplePayloads(c) {
		os.WriteFile(filepath.Join(want, "e"), p, 0o600)
		m.sh(fmt.Sprintf("cmp $S/batch/x/entries/%06d %s/e && test $(stat -c %%s $S/batch/x/entries/%06d) = %d", i, want, i, len(p)))
	}
	equal(t, m.sh("tar tf $S/batch/x/tar | head -4"), "b/o1\nb/o0\nb/o7\nb/s.tar/d/m2")
	m.sh(`T=$(mktemp -d); tar xf $S/batch/x/tar -C $T && cmp $T/b/o7 $M/b/o7 && rm -r $T`)
	m.py(`
st = json.load(open(s + "/batch/x/status"))
assert st.pop("ms") >= 0
assert st == {"id":"x","state":"done","n":12,"arrived":12,"ok":12,"err":0,"bytes":` + fmt.Sprint(len(data)) + `}, st
mf = json.load(open(s + "/batch/x/manifest"))
assert mf["id"] == "x" and len(mf["in"]) == 12 and mf["in"][3]["bucket"] == "b" and "ttl" not in mf, mf
# a loader's way: both files mapped, shared
def mapped(name):
    with open(s + "/batch/x/" + name, "rb") as f:
        return mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
ix, data = mapped("index"), mapped("data")
assert bytes(ix) == open("` + want + `/index", "rb").read() and bytes(data) == open("` + want + `/data", "rb").read()
send(session(), {"op":"release","id":"x"})
assert data[-1:] == open("` + want + `/data", "rb").read()[-1:]
`)
	if n := c.count("getbatch"); n != 1 {
		t.Errorf("%d GetBatch for one manifest", n)
	}
	if r := c.requests[0]; !batchingID(r.ID) || r.ID == "x" || r.Format() != batching.FormatFrames {
		t.Errorf("the request went as %q in %q", r.ID, r.Format())
	}
}

func batchingID(id string) bool { return batching.CheckID(id) == nil }

func TestPlainTextAndOptions(t *testing.T) {
	c := sampleCluster(t)
	m := newMount(t, c, nil)
	// closed by the end of the session
	m.sh(`printf '# a comment\nb/o1\nb/s.tar@/m1\n' > $S/control`)
	m.eventually(func() bool { b := m.batches.get("b1"); return b != nil && b.progress().over })
	equal(t, m.sh("cat $S/batch/b1/entries/000001; tar tf $S/batch/b1/tar"), "member oneb/o1\nb/s.tar/m1")
	// closed by an empty line
	m.py(`
fd = session()
send(fd, "b/o1\nb/o", "2\n\nb/o3\n", "\r\n")
assert [event(fd)["n"] for _ in range(1)] == [2]
ids = set()
while len(ids) < 2: ids.add(until(fd, "done")["id"])
assert ids == {"b2", "b3"}, ids
`)
	m.sh(`echo '{"id":"o","onob":true,"mime":"tar","strm":false,"coer":true,"timeout":"30s","ttl":60,"in":[{"bucket":"b","objname":"o1"}]}' > $S/control`)
	equal(t, m.sh("tar tf $S/batch/o/tar; tar tf $S/batch/o/tar"), "o1\no1")
	r := c.requests[len(c.requests)-1]
	if r.Streaming() || !r.Onob || !r.Coer || time.Duration(r.Timeout) != 30*time.Second || r.Format() != batching.FormatFrames {
		t.Errorf("passed on as %+v", r)
	}
}

func TestEvents(t *testing.T) {
	c := sampleCluster(t)
	open := c.gate("o3")
	t.Cleanup(open)
	c.fails["o2"] = errs.New(errs.NotFound, "get", "no such object")
	m := newMount(t, c, nil)
	cmd := m.command("python3", "-c", pyHead+`
fd = session()
send(fd, {"id":"x","coer":True,"bucket":"b","in":[{"objname":"o1"},{"objname":"o2"},{"objname":"o1"},{"objname":"o3"}]})
e = event(fd); assert e == {"event":"accepted","id":"x","n":4}, e
got = []
while sum(e["to"]-e["from"]+1 for e in got if e["event"]=="ready") < 3: got.append(event(fd))
bad = [e for e in got if e["event"]=="error"]
assert len(bad) == 1 and bad[0]["i"] == 1 and bad[0]["errno"] == "ENOENT" and "no such object" in bad[0]["msg"], bad
fails(errno.EINVAL, send, fd, {"op":"status"})
e = event(fd); assert e["event"] == "error" and e["errno"] == "EINVAL" and "i" not in e and "id" in e["msg"], e
fails(errno.ENOENT, send, fd, {"op":"status","id":"none"})
e = event(fd); assert (e["event"], e["errno"], e["id"]) == ("error","ENOENT","none"), e
send(fd, {"op":"status","id":"x"})
e = event(fd); assert (e["event"], e["state"], e["arrived"], e["ok"], e["err"]) == ("status","running",3,2,1), e
other = session(os.O_NONBLOCK)
fails(errno.EAGAIN, os.read, other, 100)
send(other, {"op":"wait","id":"x"})
fails(errno.EAGAIN, os.read, other, 100)
print("waiting", flush=True)
e = until(fd, "done"); assert (e["n"], e["ok"], e["err"], e["bytes"]) == (4, 3, 1, 514), e
while True:
    try: e = until(other, "done"); break
    except BlockingIOError: pass
send(other, {"op":"wait","id":"x"})
e = until(other, "done"); assert e["id"] == "x"
fails(errno.ENOENT, open, s + "/batch/x/entries/000001")
assert [r[3:] for r in rows("x")] == [(0,0),(1,errno.ENOENT),(0,0),(0,0)]
assert [r[:2] for r in rows("x")] == [(0,1),(1,0),(1,1),(2,512)], rows("x")
fails(errno.ESPIPE, os.pread, fd, 10, 0)
send(fd, {"op":"release","id":"x"})
e = event(fd); assert e == {"event":"released","id":"x"}, e
assert os.listdir(s + "/batch") == []
`)
	out, _ := cmd.StdoutPipe()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if n, _ := out.Read(make([]byte, 16)); n > 0 {
		open()
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err, stderr.String())
	}
}

func TestPlaceholders(t *testing.T) {
	c := sampleCluster(t)
	c.breaks["o6"] = true
	c.fails["o4"] = errs.New(errs.Timeout, "get", "slow")
	m := newMount(t, c, nil)
	m.py(`
fd = session()
send(fd, {"id":"x","coer":True,"bucket":"b","in":[{"objname":"o2"},{"objname":"o6"},{"objname":"gone"},{"objname":"o4"},{"objname":"o3"}]})
e = until(fd, "done"); assert (e["ok"], e["err"], e["bytes"]) == (2, 3, 1023), e
r = rows("x")
assert [x[:2] for x in r] == [(0,511),(511,0),(511,0),(511,0),(511,512)], r
assert [x[3:] for x in r] == [(0,0),(20,errno.EHOSTUNREACH),(1,errno.ENOENT),(10,errno.ETIMEDOUT),(0,0)], r
assert open(s+"/batch/x/data","rb").read() == open(m+"/b/o2","rb").read() + open(m+"/b/o3","rb").read()
fails(errno.EHOSTUNREACH, open, s+"/batch/x/entries/000001")
fails(errno.ENOENT, open, s+"/batch/x/entries/000002")
`)
	equal(t, m.sh("tar tf $S/batch/x/tar"), "b/o2\n__404__/b/o6\n__404__/b/gone\n__404__/b/o4\nb/o3")
}

func TestHardFailure(t *testing.T) {
	c := sampleCluster(t)
	c.hard["o5"] = errs.New(errs.SenderTimeout, "getbatch", "n2 is silent")
	c.breaks["o7"] = true
	m := newMount(t, c, nil)
	m.py(`
fd = session()
send(fd, {"id":"x","bucket":"b","in":[{"objname":"o2"},{"objname":"o5"},{"objname":"o3"}]})
e = until(fd, "done")
assert (e["errno"], e["n"], e["ok"], e["err"]) == ("ETIMEDOUT",3,1,2) and "silent" in e["msg"], e
assert [x[3:] for x in rows("x")] == [(0,0),(21,errno.ETIMEDOUT),(21,errno.ETIMEDOUT)]
st = json.load(open(s+"/batch/x/status"))
assert (st["state"], st["arrived"], st["errno"]) == ("failed", 1, "ETIMEDOUT"), st
assert len(open(s+"/batch/x/data","rb").read()) == 511
fails(errno.ETIMEDOUT, open, s+"/batch/x/entries/000002")
f = open(s+"/batch/x/tar","rb", buffering=0)
got = f.read(1 << 20)
assert len(got) == 1024, len(got)
fails(errno.EIO, f.read, 1)
send(fd, {"id":"y","bucket":"b","in":[{"objname":"o2"},{"objname":"o7"}]})
e = until(fd, "done")
assert (e["errno"], e["bytes"]) == ("EHOSTUNREACH", 511), e
assert os.stat(s+"/batch/y/data").st_size == 511
`)
	for _, script := range []string{"cat $S/batch/x/tar", "tar tf $S/batch/x/tar", "cp $S/batch/x/tar /dev/shm/sheaf-test-$$; R=$?; rm -f /dev/shm/sheaf-test-$$; exit $R"} {
		if out, err := m.try(script); err == nil || !strings.Contains(out, "Input/output error") {
			t.Errorf("%s: %v %s", script, err, out)
		}
	}
}

func TestBlockingReads(t *testing.T) {
	c := sampleCluster(t)
	open := c.gate("o6")
	t.Cleanup(open)
	m := newMount(t, c, nil)
	m.sh(`echo '{"id":"x","bucket":"b","in":[{"objname":"o2"},{"objname":"o6"}]}' > $S/control`)
	equal(t, m.sh("cat $S/batch/x/entries/000000 | wc -c"), "511")
	equal(t, m.sh("stat -c %s $S/batch/x/data $S/batch/x/entries/000001 $S/batch/x/index"), "511\n0\n96")
	// What waits ends with a signal, whichever file it waits for.
	for _, file := range []string{"entries/000001", "data", "index", "tar"} {
		for _, sig := range []string{"INT", "KILL"} {
			cmd := m.command("python3", "-c", pyHead+`
import signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
print("begin", flush=True)
open(s + "/batch/x/`+file+`", "rb").read()`)
			out, _ := cmd.StdoutPipe()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			out.Read(make([]byte, 16))
			m.eventually(func() bool { return m.opensOf("x") == 1 })
			if err := m.command("kill", "-"+sig, fmt.Sprint(cmd.Process.Pid)).Run(); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "signal") {
				t.Errorf("%s of the reader of %s: %v", sig, file, err)
			}
			m.eventually(func() bool { return m.opensOf("x") == 0 })
		}
	}
	// Others wait until the entry comes, and see it whole.
	cmd := m.command("bash", "-c", `set -e; cmp $S/batch/x/entries/000001 $M/b/o6 & A=$!; cat $S/batch/x/data | wc -c & B=$!
		tar tf $S/batch/x/tar & C=$!; T=$(mktemp); cp $S/batch/x/data $T & D=$!; cat $S/batch/x/index | wc -c & E=$!
		wait $A; wait $B; wait $C; wait $D; wait $E; stat -c %s $T; rm $T`)
	var stdout strings.Builder
	cmd.Stdout = &stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.eventually(func() bool { return m.opensOf("x") == 5 })
	open()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	got := strings.Fields(stdout.String())
	for _, want := range []string{"100511", "128", "b/o2", "b/o6"} {
		if !strings.Contains(" "+strings.Join(got, " ")+" ", " "+want+" ") {
			t.Errorf("%v: no %s", got, want)
		}
	}
	if got[len(got)-1] != "100511" {
		t.Errorf("the copy has %s bytes", got[len(got)-1])
	}
}

// A file that was opened before its batch was done can be mapped when it is.
func TestMapWhatWasOpenedEarly(t *testing.T) {
	c := sampleCluster(t)
	open := c.gate("o6")
	t.Cleanup(open)
	m := newMount(t, c, nil)
	cmd := m.command("python3", "-c", pyHead+`
fd = session()
send(fd, {"id":"x","bucket":"b","in":[{"objname":"o2"},{"objname":"o6"}]})
until(fd, "ready")
f = os.open(s+"/batch/x/data", os.O_RDONLY)
assert os.fstat(f).st_size == 511 and len(os.read(f, 100)) == 100
print("early", flush=True)
until(fd, "done")
mm = mmap.mmap(f, 0, mmap.MAP_SHARED, mmap.PROT_READ)
assert mm[:] == open(m+"/b/o2","rb").read() + open(m+"/b/o6","rb").read()
`)
	out, _ := cmd.StdoutPipe()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if n, _ := out.Read(make([]byte, 16)); n > 0 {
		open()
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err, stderr.String())
	}
}

func TestCancel(t *testing.T) {
	c := sampleCluster(t)
	t.Cleanup(c.gate("o6"))
	m := newMount(t, c, nil)
	m.py(`
fd = session()
send(fd, {"id":"x","bucket":"b","in":[{"objname":"o2"},{"objname":"o6"}]})
until(fd, "ready")
send(session(), {"op":"cancel","id":"x"})
e = until(fd, "done"); assert (e["errno"], e["ok"], e["err"]) == ("ECANCELED", 1, 1), e
assert [x[3:] for x in rows("x")] == [(0,0),(12,errno.ECANCELED)]
fails(errno.ECANCELED, open, s+"/batch/x/entries/000001")
assert json.load(open(s+"/batch/x/status"))["state"] == "canceled"
send(fd, {"op":"cancel","id":"x"})
assert until(fd, "done")["errno"] == "ECANCELED"
`)
}

func TestNoSpace(t *testing.T) {
	c := sampleCluster(t)
	cache := t.TempDir()
	m := &mounted{t: t}
	if out, err := m.command("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", cache).CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	t.Cleanup(func() { m.command("umount", "-l", cache).Run() })
	m = newMount(t, c, func(o *Options) { o.CacheDir = cache })
	m.py(`
fd = session()
send(fd, {"id":"x","coer":True,"bucket":"b","in":[{"objname":"o2"},{"objname":"o7"},{"objname":"o3"}]})
e = until(fd, "done")
assert (e["errno"], e["ok"], e["err"]) == ("ENOSPC", 1, 2) and "cache folder" in e["msg"], e
assert open(s+"/batch/x/data","rb").read() == open(m+"/b/o2","rb").read()
`)
}

func TestPrefetched(t *testing.T) {
	c := sampleCluster(t)
	m := newMount(t, c, nil)
	m.sh(`echo '{"id":"x","bucket":"b","in":[{"objname":"o6"},{"objname":"s.tar","archpath":"d/m2"},{"objname":"o5","start":1,"length":2}]}' > $S/control; cat $S/batch/x/data > /dev/null`)
	equal(t, m.sh("cat $M/b/s.tar@/d/m2; cmp $M/b/o6 $S/batch/x/entries/000000"), "member two")
	if n := c.count("get"); n != 0 {
		t.Errorf("%d GETs for what lies in a batch", n)
	}
	m.sh("cat $M/b/o5 > /dev/null")
	if n := c.count("get"); n != 1 {
		t.Errorf("%d GETs for an object of which a range lies in a batch", n)
	}
	stats := m.sh("cat $S/stats")
	for _, want := range []string{"sheaf_mount_prefetched_opens_total 2", "sheaf_mount_getbatch_calls_total 1", "sheaf_mount_batches_live 1", "sheaf_mount_batch_entries_total 3"} {
		if !strings.Contains(stats, want+"\n") {
			t.Errorf("no %q in\n%s", want, stats)
		}
	}
	// Another version is not served from the batch, nor is a batch that is gone.
	c.put("b", "o4", []byte("new"))
	m.sh(`echo '{"op":"release","id":"x"}' > $S/control`)
	m.eventually(func() bool { return m.Status().Batches == 0 })
	if n := len(m.batches.whole.at); n != 0 {
		t.Errorf("%d places of a released batch are remembered", n)
	}
}

func TestDotSheaf(t *testing.T) {
	m := newMount(t, sampleCluster(t), nil)
	equal(t, m.sh("ls $S; cat $S/version"), "batch\nconfig\ncontrol\nstats\nstatus\nversion\nsheaf test")
	m.py(`
st = json.load(open(s + "/status")); assert st["batches"] == 0 and st["sessions"] == 0, st
assert json.load(open(s + "/config"))["max_batches"] == 256
assert os.stat(s + "/control").st_mode & 0o777 == 0o600
fd = session(); assert json.load(open(s + "/status"))["sessions"] == 1
`)
}
