package index

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
)

// Where a tar header keeps its checksum, which counts these 8 bytes as spaces.
const sumAt, sumEnd = 148, 156

// looksTar tells whether a shard may be a tar: it is empty, or its first block
// is a header or the beginning of the end marker.
func looksTar(head []byte) bool {
	return len(head) == 0 || len(head) == blockSize && (bytes.Equal(head, zeroBlock[:]) || sumRight(head))
}

// sumRight checks a header's checksum. Some old writers added bytes as signed.
func sumRight(block []byte) bool {
	want, err := strconv.ParseInt(string(bytes.Trim(block[sumAt:sumEnd], " \x00")), 8, 64)
	if err != nil {
		return false
	}
	var unsigned, signed int64
	for i, c := range block {
		if sumAt <= i && i < sumEnd {
			c = ' '
		}
		unsigned += int64(c)
		signed += int64(int8(c))
	}
	return want == unsigned || want == signed
}

// walkTar adds the members of a tar. archive/tar reads the headers: it knows
// the dialects, and bounds extended headers and sparse maps (1 MiB each). When
// its Next returns, the window stands at the first byte of the payload.
func walkTar(w *window, b *builder) error {
	t := tar.NewReader(w)
	for {
		w.look()
		h, err := t.Next()
		switch {
		case errors.Is(err, tar.ErrInsecurePath):
			// Only with GODEBUG=tarinsecurepath=0; add judges names by itself.
		case errors.Is(err, io.EOF):
			return tarEnd(w)
		case err != nil:
			return tarError(w, err)
		}
		if err := addTar(b, w, h); err != nil {
			return err
		}
	}
}

// addTar sorts one entry into the builder. The order matters: a sparse file's
// type is that of a regular one in the PAX dialect.
func addTar(b *builder, w *window, h *tar.Header) error {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont:
		switch {
		case sparsePAX(h.PAXRecords):
			b.skipped.Sparse++
		case h.Size > w.size-w.pos:
			return bad(w.pos, "%d bytes of payload, and the shard ends after %d", h.Size, w.size-w.pos)
		case strings.HasSuffix(h.Name, "/"):
			// Older tars wrote directories this way.
			b.skipped.Directories++
		default:
			return b.add(h.Name, w.pos, h.Size, h.ModTime)
		}
	case tar.TypeGNUSparse:
		b.skipped.Sparse++
	case tar.TypeDir:
		b.skipped.Directories++
	case tar.TypeLink, tar.TypeSymlink:
		b.skipped.Links++
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		b.skipped.Devices++
	case tar.TypeXGlobalHeader:
		if moves(h.PAXRecords) {
			return bad(w.block, "a global header gives names or sizes")
		}
	default:
		b.skipped.Other++
	}
	return nil
}

// sparsePAX tells whether PAX records describe a file with holes, as written by
// GNU tar and bsdtar or by star. Versions that archive/tar doesn't know count
// too: their payload isn't the file either.
func sparsePAX(records map[string]string) bool {
	for k := range records {
		if strings.HasPrefix(k, "GNU.sparse.") || k == "SCHILY.realsize" {
			return true
		}
	}
	return false
}

// moves tells whether the records of a global header, which POSIX applies to
// all entries after it and archive/tar to none, would change what is where.
func moves(records map[string]string) bool {
	_, path := records["path"]
	_, size := records["size"]
	return path || size || sparsePAX(records)
}

// tarEnd judges an end that archive/tar takes for a clean one. It isn't when an
// extended header has no entry after it, or the last padding is cut short.
func tarEnd(w *window) error {
	switch {
	case w.header:
		return bad(w.pos, "the shard is truncated: an extended header has no entry after it")
	case !w.ended && w.size%blockSize != 0:
		return bad(w.size, "the shard is truncated in the padding of its last entry")
	}
	return nil
}

// tarError says where and why archive/tar gave up.
func tarError(w *window, err error) error {
	switch {
	case w.err != nil:
		return w.err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return bad(w.pos, "the shard is truncated")
	case errors.Is(err, tar.ErrFieldTooLong):
		return bad(w.block, "an extended header is longer than 1 MiB")
	case w.lone:
		return bad(w.block, "data after half of an end marker")
	}
	why := "malformed header"
	// Later blocks may be maps or records, which have no checksum.
	if block := make([]byte, blockSize); w.block == w.first {
		if n, _ := w.src.ReadAt(block, w.block); n == blockSize && !sumRight(block) {
			why = "wrong header checksum"
		}
	}
	e := bad(w.block, "%s", why)
	e.Err = err
	return e
}
