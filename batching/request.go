package batching

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"sheaf/internal/errs"
	"sheaf/internal/names"
)

// Limits of one request. They bound what a hostile manifest or peer can make a
// node allocate; a larger job is several batches.
const (
	MaxEntries       = 65_536
	MaxOpaque        = 1024             // bytes of one entry's opaque
	MaxID            = 64               // bytes of a request id
	MaxManifest      = 64 << 20         // bytes of a manifest
	MaxTimeout       = 24 * time.Hour   //
	DefaultSoftError = 6                // AIStore's default for max_soft_errors
	DefaultTimeout   = 10 * time.Minute // of a whole batch
)

// Output formats.
const (
	FormatFrames = "frames" // entries as typed frames (docs/protocol.md)
	FormatTar    = "tar"    // a TAR stream, reproducible byte for byte
)

// Entry is one item of a batch: a whole object, a member of a shard, or a byte
// range of either. The JSON names are AIStore's.
//
// Start and Length are bytes: (0,0) is the whole, Length −1 reaches to the end,
// and a Start above 0 needs a Length. With ArchPath the range counts inside the
// member. A range that begins or ends beyond the end is RangeNotSatisfiable.
type Entry struct {
	Bucket   string `json:"bucket,omitempty"`
	Provider string `json:"provider,omitempty"`
	ObjName  string `json:"objname"`
	ArchPath string `json:"archpath,omitempty"`
	Start    int64  `json:"start,omitempty"`
	Length   int64  `json:"length,omitempty"`
	Opaque   string `json:"opaque,omitempty"` // returned as given
}

// Kind says what an entry is, for metrics: "object", "member" or "range".
func (e *Entry) Kind() string {
	switch {
	case e.Start != 0 || e.Length != 0:
		return "range"
	case e.ArchPath != "":
		return "member"
	}
	return "object"
}

// Range resolves the entry's range against the size of what it names, giving
// the offset and number of bytes to deliver.
func (e *Entry) Range(size int64) (off, n int64, err error) {
	switch {
	case e.Start == 0 && e.Length == 0:
		return 0, size, nil
	case e.Length == -1 && e.Start <= size:
		return e.Start, size - e.Start, nil
	case e.Length >= 0 && e.Start <= size && e.Length <= size-e.Start:
		return e.Start, e.Length, nil
	}
	return 0, 0, &errs.Error{Code: errs.RangeNotSatisfiable, Op: "range", Bucket: e.Bucket, Object: e.ObjName, Member: e.ArchPath,
		Msg: fmt.Sprintf("start %d length %d of %d bytes", e.Start, e.Length, size)}
}

// Duration is a time.Duration that JSON writes as "1m30s" and reads from that or
// from a number of seconds.
type Duration time.Duration

// MarshalJSON writes the duration as a string.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads "90s" or 90.
func (d *Duration) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil // as for other fields: as if it weren't there
	}
	var s string
	if json.Unmarshal(b, &s) == nil {
		v, err := time.ParseDuration(s)
		if err != nil {
			return fmt.Errorf("duration %q: want something like \"30s\" or a number of seconds", s)
		}
		*d = Duration(v)
		return nil
	}
	sec, err := strconv.ParseFloat(string(b), 64)
	if err != nil || sec < 0 || sec > MaxTimeout.Seconds() {
		return fmt.Errorf("duration %.40s: want a number of seconds from 0 to %.0f", b, MaxTimeout.Seconds())
	}
	*d = Duration(sec * float64(time.Second))
	return nil
}

// Request is one GetBatch: the entries in the order they shall come back, and
// how. The zero value of every option is its default. The field names are those
// of AIStore's GetBatch (the paper, sections 2.2 and 2.4).
type Request struct {
	// ID names the request in logs and chooses the Designated Target; empty: the client makes one.
	ID string  `json:"id,omitempty"`
	In []Entry `json:"in"`
	// Bucket and Provider are for entries that name none.
	Bucket   string `json:"bucket,omitempty"`
	Provider string `json:"provider,omitempty"`
	// OutputFormat (or Mime, AIStore's word for it): FormatFrames or FormatTar.
	Mime         string `json:"mime,omitempty"`
	OutputFormat string `json:"output_format,omitempty"`
	// Strm nil or true: entries are emitted as soon as the first are there. False: the
	// sizes and errors of all entries are known before the first byte.
	Strm *bool `json:"strm,omitempty"`
	// Onob: names in archives carry no bucket.
	Onob bool `json:"onob,omitempty"`
	// Coer: soft errors become placeholders, up to MaxSoftErrors of them (0: DefaultSoftError, −1: none too many).
	Coer          bool `json:"coer,omitempty"`
	MaxSoftErrors int  `json:"max_soft_errors,omitempty"`
	// Coloc 0: the DT by hash of ID; 1 and 2: the node that owns most entries.
	Coloc int `json:"coloc,omitempty"`
	// Assembly "" , "auto" or "dt": the Designated Target assembles.
	Assembly string `json:"assembly,omitempty"`
	// Order "" or "strict": request order.
	Order string `json:"order,omitempty"`
	// Timeout of the whole batch; 0: DefaultTimeout.
	Timeout Duration `json:"timeout,omitempty"`
}

// Streaming tells whether strm is on (the default).
func (r *Request) Streaming() bool { return r.Strm == nil || *r.Strm }

// Format is the output format with the default filled in.
func (r *Request) Format() string {
	switch {
	case r.OutputFormat != "":
		return r.OutputFormat
	case r.Mime != "":
		return r.Mime
	}
	return FormatFrames
}

// SoftErrorLimit is how many soft errors are placeholders before the batch aborts.
func (r *Request) SoftErrorLimit() int {
	switch {
	case r.MaxSoftErrors < 0:
		return len(r.In)
	case r.MaxSoftErrors == 0:
		return DefaultSoftError
	}
	return r.MaxSoftErrors
}

// Normalize fills in each entry's bucket and provider and checks everything,
// listing every fault at once (the first few, with a count). After it, each
// entry stands for itself. The error has code InvalidArgument or TooManyEntries.
func (r *Request) Normalize() error {
	if len(r.In) > MaxEntries {
		return errs.New(errs.TooManyEntries, "manifest", fmt.Sprintf("%d entries, the limit is %d: split it into several batches", len(r.In), MaxEntries))
	}
	f := faults{code: errs.InvalidArgument}
	if len(r.In) == 0 {
		f.addf("\"in\" has no entries")
	}
	if r.ID != "" {
		f.add(CheckID(r.ID))
	}
	if r.Mime != "" && r.OutputFormat != "" && r.Mime != r.OutputFormat {
		f.addf("mime %q and output_format %q differ", r.Mime, r.OutputFormat)
	}
	f.oneOf("output_format", r.Format(), FormatFrames, FormatTar)
	f.oneOf("assembly", r.Assembly, "", "auto", "dt")
	f.oneOf("order", r.Order, "", "strict")
	if r.Coloc < 0 || r.Coloc > 2 {
		f.addf("coloc %d: want 0, 1 or 2", r.Coloc)
	}
	if r.MaxSoftErrors < -1 {
		f.addf("max_soft_errors %d: want −1 or more", r.MaxSoftErrors)
	}
	if r.Timeout < 0 || time.Duration(r.Timeout) > MaxTimeout {
		f.addf("timeout %v: want 0 to %v", time.Duration(r.Timeout), MaxTimeout)
	}
	for i := range r.In {
		e := &r.In[i]
		if e.Bucket == "" {
			e.Bucket = r.Bucket
		}
		if e.Provider == "" {
			e.Provider = r.Provider
		}
		if err := e.normalize(); err != nil {
			f.addf("entry %d: %v", i, err)
		}
	}
	return f.err("manifest")
}

// normalize checks one entry, giving its first fault.
func (e *Entry) normalize() error {
	if e.Bucket == "" {
		return errors.New("no bucket: neither the entry nor the request names one")
	}
	p, err := names.Provider(e.Provider)
	if err != nil {
		return err
	}
	e.Provider = p
	if err := names.CheckBucket(e.Bucket); err != nil {
		return err
	}
	if err := names.CheckObject(e.ObjName); err != nil {
		return err
	}
	if e.ArchPath != "" {
		if err := names.CheckMember(e.ArchPath); err != nil {
			return err
		}
	}
	switch {
	case e.Start < 0:
		return fmt.Errorf("start %d is negative", e.Start)
	case e.Length < -1:
		return fmt.Errorf("length %d is negative (−1 alone means to the end)", e.Length)
	case e.Start > 0 && e.Length == 0:
		return fmt.Errorf("start %d needs a length (−1 for to the end)", e.Start)
	case e.Length > 0 && e.Start+e.Length < 0:
		return fmt.Errorf("start %d with length %d overflows", e.Start, e.Length)
	case len(e.Opaque) > MaxOpaque:
		return fmt.Errorf("opaque has %d bytes, the limit is %d", len(e.Opaque), MaxOpaque)
	}
	return nil
}

// CheckID: 1 to 64 of A-Z, a-z, 0-9, '.', '_', '-', and not "." or "..".
func CheckID(id string) error {
	ok := id != "" && len(id) <= MaxID && id != "." && id != ".."
	for i := 0; ok && i < len(id); i++ {
		c := id[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
	}
	if !ok {
		return fmt.Errorf("id %.80q: want 1 to %d of A-Z a-z 0-9 . _ -", id, MaxID)
	}
	return nil
}

// faults gathers what is wrong with a request, so that a user mends it once.
type faults struct {
	list []error
	more int
	code errs.Code
}

const maxFaults = 8

func (f *faults) add(err error) {
	switch {
	case err == nil:
	case len(f.list) < maxFaults:
		f.list = append(f.list, err)
	default:
		f.more++
	}
}

func (f *faults) addf(format string, a ...any) { f.add(fmt.Errorf(format, a...)) }

func (f *faults) oneOf(field, got string, want ...string) {
	for _, w := range want {
		if got == w {
			return
		}
	}
	f.addf("%s %q: want one of %q", field, got, want)
}

func (f *faults) err(op string) error {
	if len(f.list) == 0 {
		return nil
	}
	if f.more > 0 {
		f.list = append(f.list, fmt.Errorf("and %d faults more", f.more))
	}
	e := errs.New(f.code, op, "")
	msg := ""
	for i, l := range f.list {
		if i > 0 {
			msg += "; "
		}
		msg += l.Error()
	}
	e.Msg = msg
	return e
}
