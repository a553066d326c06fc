package fusefs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCommandsAndWrites(t *testing.T) {
	c := sampleCluster(t)
	m := newMount(t, c, nil)
	m.py(`
fd = session()
# two commands in one write, one command over many
send(fd, '{"id":"p","in":[{"bucket":"b","objname":"o1"}]}{"id":"q","in":[{"bucket":"b","objname":"o2"}]}')
done = {until(fd, "done")["id"], until(fd, "done")["id"]}
assert done == {"p", "q"}, done
for ch in '{"id":"r","in":[{"bucket":"b","objname":"o3"}]}': send(fd, ch)
assert until(fd, "done")["bytes"] == 512
# an id in use
fails(errno.EEXIST, send, fd, {"id":"r","in":[{"bucket":"b","objname":"o3"}]})
e = event(fd); assert (e["event"], e["id"], e["errno"]) == ("error", "r", "EEXIST"), e
# refusals, and the session goes on
for bad in ['{"in":[]}', '{"in":5}', '{"x":1}', '[1]', 'nonsense\n\n', '{"op":"fly","id":"r"}']:
    fails(errno.EINVAL, send, fd, bad)
    e = event(fd); assert e["event"] == "error" and e["errno"] == "EINVAL" and e["msg"], e
fails(errno.E2BIG, send, fd, "b/o1\n" * 70000 + "\n")
assert event(fd)["errno"] == "E2BIG"
send(fd, {"op":"status","id":"r"})
assert event(fd)["event"] == "status"
# a long manifest, which the kernel cuts into many writes, refused at its very end
long = json.dumps({"id":"r","bucket":"b","in":[{"objname":"o1","opaque":"x"*900}]*4000})
def write_all(text):
    text = memoryview(text.encode())
    while text: text = text[os.write(fd, text):]
assert len(long) > 3 << 20
fails(errno.EEXIST, write_all, long)
assert event(fd)["errno"] == "EEXIST"
write_all(long.replace('"r"', '"s"'))
e = until(fd, "done"); assert (e["id"], e["n"], e["ok"]) == ("s", 4000, 4000), e
# two sessions don't mix
a, b = session(), session()
send(a, '{"id":"t","in":[{"bucket":"b",'); send(b, '{"id":"u","in":[{"bucket":"b","objname":"o1"}]}')
send(a, '"objname":"o2"}]}')
assert until(a, "done")["id"] == "t" and until(b, "done")["id"] == "u"
# an inherited descriptor closed by a child means nothing
if os.fork() == 0:
    os.close(a); os._exit(0)
os.wait()
send(a, {"op":"status","id":"t"}); assert until(a, "status")["id"] == "t"
`)
}

func TestGarbage(t *testing.T) {
	m := newMount(t, newFakeCluster(), nil)
	for _, script := range []string{
		"head -c 64M /dev/urandom > $S/control",
		"head -c 64M /dev/zero > $S/control",
		"yes x | tr -d '\\n' | head -c 64M > $S/control",
		"(printf '{'; yes ' ' | tr -d '\\n' | head -c 65M) > $S/control",
	} {
		if out, err := m.try("set -o pipefail; " + script); err == nil {
			t.Errorf("%s succeeded: %s", script, out)
		}
	}
	equal(t, m.sh("ls $S/batch"), "")
}

func TestBind(t *testing.T) {
	c := sampleCluster(t)
	t.Cleanup(c.gate("o6"))
	m := newMount(t, c, nil)
	cmd := m.command("python3", "-c", pyHead+`
fd = session()
for id, bind in [("x", True), ("y", True), ("z", False)]:
    send(fd, {"id":id,"bind":bind,"bucket":"b","in":[{"objname":"o2"},{"objname":"o6"}]})
send(fd, {"op":"detach","id":"y"})
assert until(fd, "detached") == {"event":"detached","id":"y"}
print("begin", flush=True)
time.sleep(1000)`)
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if n, _ := out.Read(make([]byte, 16)); n == 0 {
		t.Fatal("the session didn't begin")
	}
	equal(t, m.sh("ls $S/batch"), "x\ny\nz")
	cmd.Process.Kill()
	cmd.Wait()
	m.eventually(func() bool { return m.batches.get("x") == nil })
	equal(t, m.sh("ls $S/batch"), "y\nz")
}

func TestTimeToLive(t *testing.T) {
	c := sampleCluster(t)
	m := newMount(t, c, nil)
	m.sh(`echo '{"id":"keep","in":[{"bucket":"b","objname":"o2"}]}' > $S/control`)
	cmd := m.command("python3", "-c", pyHead+`
fd = session()
send(fd, {"id":"x","ttl":0.3,"bucket":"b","in":[{"objname":"o7"}]})
f = open(s+"/batch/x/data","rb")
until(fd, "done")
time.sleep(1)
assert os.path.exists(s+"/batch/x"), "removed while open"
f.close()
while os.path.exists(s+"/batch/x"): time.sleep(0.01)
send(fd, {"id":"x","in":[{"bucket":"b","objname":"o2"}]})
`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	equal(t, m.sh("ls $S/batch"), "keep\nx")
}

func TestReleaseWhileOpen(t *testing.T) {
	c := sampleCluster(t)
	open := c.gate("o6")
	t.Cleanup(open)
	m := newMount(t, c, nil)
	m.py(`
fd = session()
send(fd, {"id":"x","bucket":"b","in":[{"objname":"o7"}]})
until(fd, "done")
f = open(s+"/batch/x/data","rb", buffering=0)
t = open(s+"/batch/x/tar","rb")
send(fd, {"op":"release","id":"x"}); until(fd, "released")
assert not os.path.exists(s+"/batch/x") and os.listdir(s+"/batch") == []
want = open(m+"/b/o7","rb").read()
assert os.pread(f.fileno(), 4<<20, 0) == want and t.read()[512:][:len(want)] == want
# the id can be used again at once, and is another batch
send(fd, {"id":"x","bucket":"b","in":[{"objname":"o1"}]}); until(fd, "done")
assert os.path.getsize(s+"/batch/x/data") == 1 and os.fstat(f.fileno()).st_size == 3<<20
# one that still runs: what has not arrived never will
send(fd, {"id":"y","bucket":"b","in":[{"objname":"o1"},{"objname":"o6"}]}); until(fd, "ready")
f = open(s+"/batch/y/index","rb")
send(fd, {"op":"release","id":"y"})
assert struct.unpack_from("<I", f.read(), 64+32+28)[0] == errno.ECANCELED
`)
	m.eventually(func() bool {
		left, err := os.ReadDir(m.spools.path)
		return err == nil && len(left) == 1
	})
}

func TestLimit(t *testing.T) {
	c := sampleCluster(t)
	m := newMount(t, c, func(o *Options) { o.MaxBatches = 2 })
	m.py(`
fd = session(os.O_NONBLOCK)
one = '{"in":[{"bucket":"b","objname":"o1"}]}'
send(fd, one, one)
fails(errno.EAGAIN, send, fd, one)
# in two writes: the second can be tried again
send(fd, '{"id":"late","in":[{"bucket":"b",')
fails(errno.EAGAIN, send, fd, '"objname":"o1"}]}')
send(session(), {"op":"release","id":"b1"})
send(fd, '"objname":"o1"}]}')
assert sorted(os.listdir(s+"/batch")) == ["b2", "late"]
`)
	// One that waits doesn't keep out the one that makes room, and can be interrupted.
	for _, sig := range []string{"INT", "KILL"} {
		cmd := m.command("bash", "-c", `echo "$$" >&2; exec python3 -c '
import os, signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.write(os.open(os.environ["S"] + "/control", os.O_WRONLY), b"{\"in\":[{\"bucket\":\"b\",\"objname\":\"o1\"}]}")'`)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		m.eventually(func() bool { m.batches.mu.Lock(); defer m.batches.mu.Unlock(); return m.batches.freed != nil })
		m.command("kill", "-"+sig, fmt.Sprint(cmd.Process.Pid)).Run()
		if err := cmd.Wait(); err == nil {
			t.Errorf("SIG%s of a waiting writer: %v", sig, err)
		}
		m.batches.mu.Lock()
		m.batches.freed = nil
		m.batches.mu.Unlock()
	}
	cmd := m.command("bash", "-c", `echo '{"id":"third","in":[{"bucket":"b","objname":"o1"}]}' > $S/control`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.eventually(func() bool { m.batches.mu.Lock(); defer m.batches.mu.Unlock(); return m.batches.freed != nil })
	m.sh(`echo '{"op":"release","id":"b2"}' > $S/control`)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	equal(t, m.sh("ls $S/batch"), "late\nthird")
}

func TestManySessions(t *testing.T) {
	c := sampleCluster(t)
	m := newMount(t, c, nil)
	m.py(`
want = [open(f"{m}/b/o{i}","rb").read() for i in range(7)]
bad = []
def work(k):
    try:
        fd = session()
        for round in range(8):
            id = f"w{k}-{round}"
            send(fd, {"id":id,"bind":True,"bucket":"b","in":[{"objname":f"o{(k+i)%7}"} for i in range(20)]})
            f = open(f"{s}/batch/{id}/data","rb")
            got = f.read()
            assert got == b"".join(want[(k+i)%7] for i in range(20)), id
            assert until(fd, "done")["ok"] == 20
            assert all(r[3] == 0 for r in rows(id))
            if round % 2: send(fd, {"op":"release","id":id}); until(fd, "released")
        os.close(fd)
    except BaseException as e:
        bad.append(repr(e)); raise
ts = [threading.Thread(target=work, args=(k,)) for k in range(24)]
for t in ts: t.start()
for t in ts: t.join()
assert not bad, bad
`)
	m.eventually(func() bool { return m.Status().Batches == 0 && m.Status().Sessions == 0 })
	if n := c.count("getbatch"); n != 24*8 {
		t.Errorf("%d GetBatch for %d manifests", n, 24*8)
	}
}

// A reader of events wakes for each, and ends with a signal.
func TestInterruptedSession(t *testing.T) {
	m := newMount(t, sampleCluster(t), nil)
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGKILL} {
		cmd := m.command("python3", "-c", `
import os, signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
f = os.open(os.environ["S"] + "/control", os.O_RDWR)
os.read(f, 100)`)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		m.eventually(func() bool {
			m.batches.mu.Lock()
			defer m.batches.mu.Unlock()
			for s := range m.batches.sessions {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.wake != nil
			}
			return false
		})
		cmd.Process.Signal(sig)
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "signal") {
			t.Error(err)
		}
		m.eventually(func() bool { return m.Status().Sessions == 0 })
	}
}

func TestOptions(t *testing.T) {
	err := Options{FsName: "a,b", BatchTTL: -1, MaxBatches: -1}.Validate()
	for _, want := range []string{"no mountpoint", "no cache folder", "comma", "time to live", "-1 batches"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: no %q", err, want)
		}
	}
	dir := t.TempDir()
	if err := os.Symlink(dir, dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := (Options{Mountpoint: dir, CacheDir: dir + "/link/x/y"}).Validate(); err == nil {
		t.Error("a cache folder in the mountpoint by way of a link passed")
	}
	if err := (Options{Mountpoint: dir + "/a", CacheDir: dir + "/ab"}).Validate(); err != nil {
		t.Error(err)
	}
}

// What a killed mount left is removed, what a live one uses is not.
func TestSpoolSweep(t *testing.T) {
	cache := t.TempDir()
	log := Options{}.withDefaults().Logger
	live, err := openSpoolDir(cache, "live", log)
	if err != nil {
		t.Fatal(err)
	}
	sp, err := live.create(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(cache+"/batches/dead/x", 0o700); err != nil {
		t.Fatal(err)
	}
	next, err := openSpoolDir(cache, "next", log)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cache + "/batches/dead"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead one: %v", err)
	}
	if _, err := os.Stat(sp.path); err != nil {
		t.Errorf("the live one: %v", err)
	}
	sp.close()
	live.close()
	next.close()
}
