package fusefs

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sheaf/internal/errs"
	"sheaf/peer"
)

func TestTree(t *testing.T) {
	c := newFakeCluster()
	big := bytesOf("big", 9<<20+123)
	c.put("b", "a.txt", []byte("hello\n"))
	c.put("b", "empty", nil)
	c.put("b", "dir/x", []byte("x\n"))
	c.put("b", "dir/sub/y", []byte("y\n"))
	c.put("b", "big", big)
	c.put("b", "both", []byte("hidden"))
	c.put("b", "both-x", nil)
	c.put("b", "both/inside", []byte("seen"))
	c.put("b", "no//file", []byte("never"))
	c.put("b", "no/"+strings.Repeat("x", 256), []byte("never"))
	c.put("other", "o", []byte("o"))
	c.putShard(t, "b", "s.tar", "m1", "one\n", "d/m2", "two\n", "d/e/m3", "three\n", "d", "hidden", "../up", "no")
	m := newMount(t, c, nil)

	equal(t, m.sh("ls $M; ls -A $M"), "b\nother\nb\nother")
	equal(t, m.sh("ls $M/b"), "a.txt\nbig\nboth\nboth-x\ndir\nempty\nno\ns.tar")
	equal(t, m.sh("cd $M/b && find . -type f | sort"), "./a.txt\n./big\n./both-x\n./both/inside\n./dir/sub/y\n./dir/x\n./empty\n./s.tar")
	equal(t, m.sh("cat $M/b/a.txt $M/b/dir/sub/y $M/b/empty $M/other/o"), "hello\ny\no")
	equal(t, m.sh("cat $M/b/both/inside"), "seen")
	equal(t, m.sh("sha256sum < $M/b/big"), fmt.Sprintf("%x  -", sha256.Sum256(big)))
	equal(t, m.sh("T=$(mktemp); cp $M/b/big $T; sha256sum < $T; rm $T"), fmt.Sprintf("%x  -", sha256.Sum256(big)))
	equal(t, m.sh("dd if=$M/b/big bs=777 skip=9000 count=3 status=none | sha256sum"), fmt.Sprintf("%x  -", sha256.Sum256(big[777*9000:777*9003])))
	equal(t, m.sh("stat -c '%s %a %h %F' $M/b/a.txt $M/b/dir"), "6 444 1 regular file\n0 555 1 directory")
	equal(t, m.sh("stat -c %Y $M/b/a.txt"), fmt.Sprint(c.buckets["b"]["a.txt"].mtime.Unix()))
	m.sh(`test "$(du -s -B1 --apparent-size $M/b/big | cut -f1)" = 9437307`)
	equal(t, m.sh("stat -c %i $M/b/a.txt; ls -i $M/b/a.txt | cut -d' ' -f1 | uniq | wc -l"), m.sh("stat -c %i $M/b/a.txt; echo 1"))
	for _, p := range []string{"$M/none", "$M/b/none", "$M/b/dir/none", "$M/b/no/file", "$M/b/none.tar@", "$M/b/s.tar@/none", "$M/.sheaf/none", "$M/.sheaf/batch/none"} {
		if out, err := m.try("cat " + p); err == nil || !strings.Contains(out, "No such file") {
			t.Errorf("%s: %v %s", p, err, out)
		}
	}

	// shards
	equal(t, m.sh("ls -R $M/b/s.tar@ | sed s,$M,,"), "/b/s.tar@:\nd\nm1\n\n/b/s.tar@/d:\ne\nm2\n\n/b/s.tar@/d/e:\nm3")
	equal(t, m.sh("cat $M/b/s.tar@/m1 $M/b/s.tar@/d/m2 $M/b/s.tar@/d/e/m3"), "one\ntwo\nthree")
	equal(t, m.sh("tar tf $M/b/s.tar 2>/dev/null | head -2"), "m1\nd/m2")
	if n := c.count("members"); n != 1 {
		t.Errorf("the members of one shard were asked for %d times", n)
	}
}

func TestReadOnly(t *testing.T) {
	c := newFakeCluster()
	c.put("b", "f", []byte("f"))
	c.put("b", "d/x", []byte("x"))
	c.putShard(t, "b", "s.tar", "m", "m")
	m := newMount(t, c, nil)
	m.py(`
b = m + "/b/"
for f in [b + "f", b + "s.tar@/m", s + "/status"]:
    for flags in [os.O_WRONLY, os.O_RDWR, os.O_WRONLY|os.O_TRUNC, os.O_RDONLY|os.O_TRUNC]:
        fails(errno.EROFS, os.open, f, flags)
    fails(errno.EROFS, os.truncate, f, 0)
    fails(errno.EROFS, os.chmod, f, 0o600)
    fails(errno.EROFS, os.chown, f, 1, 1)
    fails(errno.EROFS, os.utime, f)
    fails(errno.EROFS, os.unlink, f)
    fails(errno.EROFS, os.setxattr, f, "user.x", b"1")
    fails(errno.EROFS, os.removexattr, f, "user.x")
    fails(errno.EROFS, os.link, f, os.path.dirname(f) + "/new")
    fails(errno.EROFS, os.rename, f, os.path.dirname(f) + "/new")
    assert not os.access(f, os.W_OK) and os.access(f, os.R_OK)
for d in [m, b, b + "d", b + "s.tar@", s, s + "/batch"]:
    fails(errno.EROFS, os.open, d + "/new", os.O_CREAT|os.O_WRONLY)
    fails(errno.EROFS, os.mkdir, d + "/new")
    fails(errno.EROFS, os.symlink, "x", d + "/new")
    fails(errno.EROFS, os.mknod, d + "/new")
fails(errno.EROFS, os.rmdir, b + "d")
fails(errno.EROFS, os.rmdir, b)
fails(errno.EROFS, os.rename, b + "d", b + "e")
fails(errno.EROFS, os.chmod, s + "/control", 0o644)
`)
}

// A folder of many pages is listed whole, whatever the page boundaries fall on, and
// without a call an entry.
func TestHugeDirectory(t *testing.T) {
	c := newFakeCluster()
	const n = 25_000
	for i := range n {
		c.put("b", fmt.Sprintf("d/%06d", i), []byte("x"))
	}
	m := newMount(t, c, nil)
	equal(t, m.sh("ls -f $M/b/d | sort -u | wc -l; ls -l $M/b/d | tail -1 | cut -d' ' -f5-5; ls -f $M/b/d | tail -1"), fmt.Sprintf("%d\n1\n%06d", n, n-1))
	if heads, lists := c.count("head"), c.count("list"); heads > 10 || lists > 20 {
		t.Errorf("%d HEADs and %d LISTs for three listings", heads, lists)
	}
	m.py(`
d = os.open(m + "/b/d", os.O_RDONLY)
a = os.listdir(d)
os.lseek(d, 0, 0)
assert a == os.listdir(d) and len(a) == 25000
os.lseek(d, 12345, 0) # where the kernel says that 12 345 entries were given
assert os.listdir(d) == a[12345:]
`)
}

func TestPageBoundaries(t *testing.T) {
	for size := 1; size <= 6; size++ {
		c := newFakeCluster()
		c.pageSize = size
		for _, name := range []string{"a", "a-1", "a-2", "a-3", "a/x", "b", "c/y", "c", "c.", "d"} {
			c.put("b", name, []byte("x"))
		}
		m := newMount(t, c, nil)
		equal(t, m.sh("ls -F $M/b"), "a/\na-1\na-2\na-3\nb\nc/\nc.\nd")
	}
}

func TestEntriesOf(t *testing.T) {
	o := func(names ...string) (l []peer.ObjectInfo) {
		for _, n := range names {
			l = append(l, peer.ObjectInfo{Name: n})
		}
		return l
	}
	for _, tc := range []struct {
		page         peer.ListPage
		want, unsure string
	}{
		{peer.ListPage{Objects: o("p/a", "p/a-x"), Token: "p/a-x"}, "a a-x", "a a-x"},
		{peer.ListPage{Objects: o("p/a", "p/a-x")}, "a a-x", ""},
		{peer.ListPage{Objects: o("p/a", "p/a-x"), Prefixes: []string{"p/a/"}, Token: "p/a/"}, "a-x a", ""},
		{peer.ListPage{Objects: o("p/a", "p/b"), Token: "p/b"}, "a b", "b"},
		{peer.ListPage{Objects: o("p/"), Prefixes: []string{"p//"}}, "", ""},
	} {
		entries, unsure := entriesOf(&tc.page, "p/")
		got := map[string]bool{}
		for _, e := range entries {
			got[e.name] = true
		}
		for _, w := range strings.Fields(tc.want) {
			if !got[w] {
				t.Errorf("%+v: no %q", tc.page, w)
			}
		}
		if len(got) != len(strings.Fields(tc.want)) || strings.Join(unsure, " ") != tc.unsure {
			t.Errorf("%+v: %v, unsure %v", tc.page, got, unsure)
		}
	}
}

// Close-to-open: an open after a change sees it; a handle from before it never
// mixes versions.
func TestReplacedObject(t *testing.T) {
	c := newFakeCluster()
	one, two := bytesOf("one", 3<<20), bytesOf("two", 5<<20)
	c.put("b", "f", one)
	c.putShard(t, "b", "s.tar", "m", "old", "gone", "x")
	m := newMount(t, c, func(o *Options) { o.AttrTimeout, o.EntryTimeout = 10*time.Millisecond, 10*time.Millisecond })
	cmd := m.command("python3", "-c", pyHead+`
f = os.open(m + "/b/f", os.O_RDONLY)
old = os.pread(f, 4096, 0)
print("ready", flush=True)
input()
fails(errno.ESTALE, os.pread, f, 4096, 2 << 20)
g = open(m + "/b/f", "rb").read()
assert len(g) == 5 << 20 and g[:4096] != old
fails(errno.ESTALE, os.pread, f, 4096, 1 << 20)
assert os.pread(f, 4096, 0) == old and os.fstat(f).st_size == 3 << 20
assert os.fstat(f).st_ino == os.stat(m + "/b/f").st_ino
`)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 16))
	equal(t, m.sh("cat $M/b/s.tar@/m $M/b/s.tar@/gone"), "oldx")
	c.put("b", "f", two)
	c.putShard(t, "b", "s.tar", "m", "newer")
	time.Sleep(200 * time.Millisecond) // past what the kernel and the mount may still believe
	in.Write([]byte("go\n"))
	if err := cmd.Wait(); err != nil {
		t.Error(err, stderr.String())
	}
	equal(t, m.sh("sha256sum < $M/b/f; cat $M/b/s.tar@/m; ls $M/b/s.tar@"), fmt.Sprintf("%x  -\nnewerm", sha256.Sum256(two)))
}

// A small file that was replaced while the mount still trusted its attributes opens
// as what it is now.
func TestReplacedJustNow(t *testing.T) {
	c := newFakeCluster()
	c.put("b", "f", []byte("one"))
	c.put("b", "g", []byte("one"))
	m := newMount(t, c, func(o *Options) { o.AttrTimeout, o.EntryTimeout = time.Hour, time.Hour })
	m.sh("stat $M/b/f $M/b/g")
	c.put("b", "f", []byte("two, longer"))
	c.mu.Lock()
	delete(c.buckets["b"], "g")
	c.mu.Unlock()
	equal(t, m.sh("cat $M/b/f; cat $M/b/g 2>&1 | cut -d: -f3"), "two, longer No such file or directory")
	m.sh("cat $M/b/f $M/b/f")
	if n := c.count("get"); n != 3 {
		t.Errorf("%d GETs, want one refused, one, and one of what is gone", n)
	}
}

func TestDeadCluster(t *testing.T) {
	c := newFakeCluster()
	c.put("b", "f", []byte("f"))
	m := newMount(t, c, func(o *Options) { o.AttrTimeout, o.EntryTimeout = -1, -1 })
	m.sh("cat $M/b/f")
	for code, says := range map[errs.Code]string{errs.Unavailable: "No route to host", errs.Timeout: "timed out"} {
		c.mu.Lock()
		c.down = errs.New(code, "call", "nobody answers")
		c.mu.Unlock()
		for _, script := range []string{"cat $M/b/f", "ls $M/b", "ls $M"} {
			if out, err := m.try(script); err == nil || !strings.Contains(out, says) {
				t.Errorf("%s: %v %s", script, err, out)
			}
		}
	}
}

// A read that waits for the cluster ends with the process.
func TestKilledRead(t *testing.T) {
	c := newFakeCluster()
	c.put("b", "f", bytesOf("f", 100))
	t.Cleanup(c.gate("get:f"))
	m := newMount(t, c, nil)
	cmd := m.command("cat", m.dir+"/b/f")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.eventually(func() bool { return c.count("get") == 1 })
	cmd.Process.Kill()
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Error(err)
	}
}

func TestNegativeTimeout(t *testing.T) {
	c := newFakeCluster()
	c.put("b", "d/x", []byte("x"))
	m := newMount(t, c, func(o *Options) { o.NegativeTimeout = time.Hour })
	m.sh("for i in 1 2 3; do ! cat $M/b/d/none; done; ! ls $M/nobucket; ! ls $S/batch/x")
	if n := c.count("head"); n > 3 {
		t.Errorf("%d HEADs", n)
	}
	m.sh(`echo '{"id":"x","in":[{"bucket":"b","objname":"d/x"}]}' > $S/control; cat $S/batch/x/data`)
}

func TestAllowOther(t *testing.T) {
	c := newFakeCluster()
	c.put("b", "f", []byte("seen\n"))
	m := newMount(t, c, func(o *Options) {
		o.AllowOther = true
		for d := o.Mountpoint; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
			os.Chmod(d, 0o755)
		}
	})
	m.sh("grep -q \" $M .*default_permissions.*allow_other\" /proc/self/mounts")
	const other = "setpriv --reuid 65534 --regid 65534 --clear-groups "
	equal(t, m.sh(other+`bash -c 'cat $M/b/f; echo "{\"in\":[{\"bucket\":\"b\",\"objname\":\"f\"}]}" > $S/control; cat $S/batch/b1/data'`), "seen\nseen")
	if out, err := m.try(other + "touch $M/b/new"); err == nil {
		t.Error(out)
	}
}
