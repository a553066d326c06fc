package run

import (
	"bufio"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// MountsBelow lists what is mounted on dir or below it, without a look into it.
func MountsBelow(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mountsBelow(f, dir)
}

// mountsBelow reads a mountinfo table, proc_pid_mountinfo(5).
func mountsBelow(r io.Reader, dir string) ([]string, error) {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var found []string
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		fields := strings.Fields(sc.Text())
		if len(fields) < 5 {
			continue
		}
		if at := unescape.Replace(fields[4]); at == dir || strings.HasPrefix(at, dir+"/") {
			found = append(found, at)
		}
	}
	return found, sc.Err()
}

func detach(mountpoint string) error {
	return unix.Unmount(mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
}
