package peer

import (
	"crypto/x509"
	"net/url"
	"path/filepath"
	"reflect"
	"testing"

	"sheaf/internal/errs"
)

func TestRightsInCertificates(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	if err := InitCA(dir); err != nil {
		t.Fatal(err)
	}
	for _, r := range []Rights{
		{Role: Reader}, {Role: Writer}, {Role: Admin}, {Role: NodeRole},
		{Role: Reader, Buckets: map[string]Role{"a": Reader}},
		{Role: Writer, Buckets: map[string]Role{"a": Reader, "b.c_d-E": Writer}},
	} {
		if err := IssueRights(dir, dir, "x", "x", r); err != nil {
			t.Fatal(err)
		}
		id, err := LoadIdentity(dir, "x")
		if err != nil {
			t.Fatal(err)
		}
		if got := RightsOf(id.cert.Leaf); !reflect.DeepEqual(got, r) {
			t.Errorf("%+v became %+v", r, got)
		}
	}
	for _, r := range []Rights{
		{}, {Role: 77},
		{Role: Reader, Buckets: map[string]Role{}},
		{Role: Reader, Buckets: map[string]Role{"a": Writer}},
		{Role: Writer, Buckets: map[string]Role{"a": Admin}},
		{Role: Writer, Buckets: map[string]Role{"a": NoRole}},
		{Role: Writer, Buckets: map[string]Role{"": Reader}},
		{Role: Writer, Buckets: map[string]Role{"a/b": Reader}},
		{Role: Admin, Buckets: map[string]Role{"a": Reader}},
		{Role: NodeRole, Buckets: map[string]Role{"a": Writer}},
	} {
		if err := IssueRights(dir, dir, "y", "y", r); !errs.IsCode(err, errs.InvalidArgument) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// What can't be read of a restriction must not lift it.
func TestRightsOfOddCertificates(t *testing.T) {
	for name, c := range map[string]struct {
		uris []string
		want Rights
	}{
		"no right":       {[]string{"sheaf://role/writer", "sheaf://bucket/b"}, Rights{Writer, map[string]Role{}}},
		"unknown right":  {[]string{"sheaf://role/writer", "sheaf://bucket/b?rights=all"}, Rights{Writer, map[string]Role{}}},
		"no name":        {[]string{"sheaf://role/writer", "sheaf://bucket/?rights=rw"}, Rights{Writer, map[string]Role{}}},
		"nothing at all": {[]string{"sheaf://role/writer", "sheaf://bucket"}, Rights{Writer, map[string]Role{}}},
		"no bucket name": {[]string{"sheaf://role/writer", "sheaf://bucket/a/b?rights=rw"}, Rights{Writer, map[string]Role{}}},
		"given twice":    {[]string{"sheaf://role/writer", "sheaf://bucket/b?rights=rw", "sheaf://bucket/b?rights=r"}, Rights{Writer, map[string]Role{"b": Writer}}},
		"other schemes":  {[]string{"sheaf://role/reader", "https://bucket/b?rights=rw"}, Rights{Reader, nil}},
		"no role":        {[]string{"sheaf://bucket/b?rights=rw"}, Rights{NoRole, map[string]Role{"b": Writer}}},
	} {
		var crt x509.Certificate
		for _, s := range c.uris {
			u, err := url.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			crt.URIs = append(crt.URIs, u)
		}
		if got := RightsOf(&crt); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	r := Rights{Writer, map[string]Role{"a": Reader}}
	for _, c := range []struct {
		bucket string
		need   Role
		may    bool
	}{{"a", Reader, true}, {"a", Writer, false}, {"b", Reader, false}, {"", Reader, false}, {"", NoRole, true}} {
		if got := r.May(c.bucket, c.need); got != c.may {
			t.Errorf("%q %s: %v", c.bucket, c.need, got)
		}
	}
	reader := Rights{Reader, map[string]Role{"a": Writer}} // a restriction never gives more than the role
	if reader.May("a", Writer) {
		t.Error("a reader may write")
	}
}
