package batching

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"sheaf/internal/errs"
)

// MissingPrefix is the folder of placeholders in an archive, AIStore's name for it.
const MissingPrefix = "__404__/"

// TarTrailer ends an archive: two blocks of zeros.
const TarTrailer = 2 * tarBlock

const tarBlock = 512

// ArchiveName is an entry's name in an archive: <bucket>/<object>, for members
// <bucket>/<shard>/<member>; with onob without the bucket. A placeholder lies
// under MissingPrefix.
func ArchiveName(e *Entry, onob, missing bool) string {
	var b strings.Builder
	if missing {
		b.WriteString(MissingPrefix)
	}
	if !onob {
		b.WriteString(e.Bucket)
		b.WriteByte('/')
	}
	if name := strings.TrimLeft(e.ObjName, "/"); name != "" {
		b.WriteString(name)
	} else {
		b.WriteString("%2F") // an object may be called "/"
	}
	if e.ArchPath != "" {
		b.WriteByte('/')
		b.WriteString(e.ArchPath)
	}
	return b.String()
}

// TarHeader is what stands before a payload of size bytes: one block, or several
// when the name or size needs PAX records. The same name and size always give the
// same bytes: mode 0644, owner 0, time 0.
func TarHeader(name string, size int64) ([]byte, error) {
	var buf bytes.Buffer
	h := tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: time.Unix(0, 0)}
	if strings.HasSuffix(name, "/") {
		// archive/tar would make it a folder and refuse the payload; an object may be called so.
		h.Name = strings.TrimRight(name, "/") + "%2F"
	}
	if err := tar.NewWriter(&buf).WriteHeader(&h); err != nil {
		return nil, errs.Wrap(errs.InvalidArgument, "tar", fmt.Errorf("name %.100q: %w", name, err))
	}
	return buf.Bytes(), nil
}

// TarPadding is the number of zero bytes after a payload of size bytes.
func TarPadding(size int64) int64 { return -size & (tarBlock - 1) }

// tarWriter writes items as a TAR stream, reproducible byte for byte.
type tarWriter struct {
	w    io.Writer
	onob bool
}

var zeros [TarTrailer]byte

func (t *tarWriter) item(it *Item) error {
	h, err := TarHeader(ArchiveName(it.Entry, t.onob, it.Err != nil), it.Size)
	if err != nil {
		return err
	}
	if _, err := t.w.Write(h); err != nil {
		return err
	}
	if it.Err != nil {
		return nil
	}
	n, err := it.WriteTo(t.w)
	if err != nil {
		return err
	}
	_, err = t.w.Write(zeros[:TarPadding(n)])
	return err
}

func (t *tarWriter) close() error {
	_, err := t.w.Write(zeros[:])
	return err
}
