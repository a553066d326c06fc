package backend

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"sheaf/internal/errs"
	"sheaf/internal/names"
)

// Location is a backend's URL, taken apart:
//
//	s3://BUCKET[/PREFIX][?endpoint=URL&region=R&profile=P&path_style=true|false&insecure=true&anonymous=true&checksum=required]
//	file:///FOLDER
type Location struct {
	Scheme string // "s3" or "file"
	Bucket string // s3: the bucket there
	Prefix string // s3: what every name there begins with; "" or ending in "/"
	Folder string // file: an absolute, clean path

	Endpoint  string // s3: URL of a server other than AWS's
	Region    string // s3: default from the environment, else us-east-1
	Profile   string // s3: of the shared configuration files
	PathStyle bool   // s3: bucket in the path, not in the host's name; default with an endpoint
	Anonymous bool   // s3: requests aren't signed
	Required  bool   // s3: no checksums that the server may not know
}

// MaxURL bounds the length of a backend's URL.
const MaxURL = 2048

func badURL(format string, a ...any) error {
	return errs.New(errs.InvalidArgument, "backend", fmt.Sprintf(format, a...))
}

// Parse takes a URL apart. Its errors never repeat what may be a secret: a URL with
// credentials is refused without being shown.
func Parse(raw string) (Location, error) {
	if len(raw) > MaxURL {
		return Location{}, badURL("a URL of %d bytes, the limit is %d", len(raw), MaxURL)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return Location{}, badURL("not a URL: want s3://BUCKET[/PREFIX][?endpoint=…] or file:///FOLDER")
	}
	if u.User != nil {
		return Location{}, badURL("the URL holds credentials: each node takes its own from the environment or the AWS configuration files")
	}
	if u.Fragment != "" || u.Opaque != "" {
		return Location{}, badURL("not a URL: want s3://BUCKET[/PREFIX][?endpoint=…] or file:///FOLDER")
	}
	switch u.Scheme {
	case "s3":
		return parseS3(u)
	case "file":
		return parseFolder(u)
	}
	return Location{}, badURL("scheme %q: want s3 or file", u.Scheme)
}

func parseFolder(u *url.URL) (Location, error) {
	if u.Host != "" || u.RawQuery != "" || !strings.HasPrefix(u.Path, "/") {
		return Location{}, badURL("want file:///FOLDER, an absolute path without host and parameters")
	}
	if u.Path != path.Clean(u.Path) && u.Path != path.Clean(u.Path)+"/" || strings.IndexByte(u.Path, 0) >= 0 {
		return Location{}, badURL("folder %q: write the path without \".\", \"..\" and double slashes", u.Path)
	}
	return Location{Scheme: "file", Folder: path.Clean(u.Path)}, nil
}

func parseS3(u *url.URL) (Location, error) {
	l := Location{Scheme: "s3", Bucket: u.Host}
	if err := names.CheckBucket(l.Bucket); err != nil {
		return Location{}, badURL("s3: the URL names no bucket: want s3://BUCKET[/PREFIX]")
	}
	if p := strings.Trim(u.Path, "/"); p != "" {
		if err := names.CheckPrefix(p); err != nil {
			return Location{}, err
		}
		l.Prefix = p + "/"
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Location{}, badURL("s3: the parameters can't be read")
	}
	insecure, styled := false, false
	flag := func(k, v string, to *bool) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return badURL("s3: parameter %s: want true or false", k)
		}
		*to = b
		return nil
	}
	for _, k := range slices.Sorted(mapsKeys(q)) {
		if len(q[k]) != 1 {
			return Location{}, badURL("s3: parameter %s is given %d times", k, len(q[k]))
		}
		v := q[k][0]
		switch k {
		case "endpoint":
			l.Endpoint = v
		case "region":
			l.Region = v
		case "profile":
			l.Profile = v
		case "path_style":
			styled = true
			err = flag(k, v, &l.PathStyle)
		case "insecure":
			err = flag(k, v, &insecure)
		case "anonymous":
			err = flag(k, v, &l.Anonymous)
		case "checksum":
			if l.Required = v == "required"; !l.Required && v != "supported" {
				err = badURL("s3: parameter checksum: want supported or required")
			}
		default:
			// The value isn't shown: it may be a key that somebody put where it doesn't belong.
			err = badURL("s3: parameter %q isn't known: there are endpoint, region, profile, path_style, insecure, anonymous and checksum; credentials never go into the URL", k)
		}
		if err != nil {
			return Location{}, err
		}
	}
	if l.Endpoint == "" {
		return l, nil
	}
	if !styled {
		l.PathStyle = true
	}
	e, err := url.Parse(l.Endpoint)
	switch {
	case err != nil || e.Host == "" || e.Scheme != "http" && e.Scheme != "https":
		return Location{}, badURL("s3: the endpoint isn't an http or https URL")
	case e.User != nil:
		return Location{}, badURL("s3: the endpoint holds credentials: each node takes its own from the environment or the AWS configuration files")
	case e.RawQuery != "" || e.Fragment != "" || e.Path != "" && e.Path != "/":
		return Location{}, badURL("s3: the endpoint is a host and port, without path and parameters")
	case e.Scheme == "http" && !insecure:
		return Location{}, badURL("s3: the endpoint is plain http, which anybody on the way can read: add insecure=true if that is meant")
	}
	return l, nil
}

func mapsKeys(q url.Values) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range q {
			if !yield(k) {
				return
			}
		}
	}
}

// String names the place for messages.
func (l Location) String() string {
	if l.Scheme == "file" {
		return "folder " + l.Folder
	}
	s := "s3 bucket " + l.Bucket
	if l.Prefix != "" {
		s += "/" + l.Prefix
	}
	if l.Endpoint != "" {
		s += " at " + l.Endpoint
	}
	return s
}
