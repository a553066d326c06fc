package backend

import (
	"testing"

	"sheaf/internal/errs"
)

func TestParse(t *testing.T) {
	good := map[string]Location{
		"s3://b":     {Scheme: "s3", Bucket: "b"},
		"s3://b/":    {Scheme: "s3", Bucket: "b"},
		"s3://b/p/q": {Scheme: "s3", Bucket: "b", Prefix: "p/q/"},
		"s3://b/p/?region=eu-central-1&profile=x":                                                  {Scheme: "s3", Bucket: "b", Prefix: "p/", Region: "eu-central-1", Profile: "x"},
		"s3://b?endpoint=https://h:9000":                                                           {Scheme: "s3", Bucket: "b", Endpoint: "https://h:9000", PathStyle: true},
		"s3://b?endpoint=http://h&insecure=true&path_style=false&anonymous=true&checksum=required": {Scheme: "s3", Bucket: "b", Endpoint: "http://h", Anonymous: true, Required: true},
		"file:///x/y/": {Scheme: "file", Folder: "/x/y"},
		"file:///":     {Scheme: "file", Folder: "/"},
	}
	for url, want := range good {
		if got, err := Parse(url); err != nil || got != want {
			t.Errorf("%s: %+v, %v", url, got, err)
		}
	}
	for _, url := range []string{
		"", "b", "s3:", "s3://", "s3:///p", "s3://b/../x", "s3://b/%00", "s3://b#f", "s3://b?x=y", "s3://b?region=a&region=b", "s3://b?endpoint=h:9000", "s3://b?endpoint=http://h",
		"s3://b?endpoint=https://h/path", "s3://b?endpoint=ftp://h", "s3://b?insecure=maybe", "s3://b?checksum=md5", "s3://b?%zz",
		"file://", "file://host/x", "file:///x/../y", "file:///x//y", "file:///x?create_dir=1", "file:x", "gs://b", "mem://",
	} {
		if got, err := Parse(url); !errs.IsCode(err, errs.InvalidArgument) {
			t.Errorf("%q: %+v, %v", url, got, err)
		}
	}
}
