package peer

import (
	"crypto/x509"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"sheaf/internal/errs"
	"sheaf/internal/names"
)

// Role is what a certificate entitles to. Each role may do all that the ones before
// it may.
type Role uint8

const (
	NoRole   Role = iota
	Reader        // read objects, batches and listings
	Writer        // and change objects and buckets
	Admin         // and change the cluster: nodes, their disks, where objects lie
	NodeRole      // and speak as a node of the cluster
)

var roleNames = [...]string{NoRole: "none", Reader: "reader", Writer: "writer", Admin: "admin", NodeRole: "node"}

func (r Role) String() string { return roleNames[r] }

// ParseRole reads "reader", "writer", "admin" or "node".
func ParseRole(s string) (Role, error) {
	for r := Reader; r <= NodeRole; r++ {
		if roleNames[r] == s {
			return r, nil
		}
	}
	return NoRole, errs.New(errs.InvalidArgument, "role", fmt.Sprintf("%q: want reader, writer, admin or node", s))
}

// Rights are a role and, of a restricted certificate, the buckets it is for.
type Rights struct {
	Role Role
	// Buckets gives Reader or Writer for each bucket; nil is all buckets, as the role
	// says. A restricted certificate may do nothing that concerns other buckets, or all.
	Buckets map[string]Role
}

// ParseBucketRight reads "NAME", "NAME:r" or "NAME:rw"; without rights they are those
// of the role.
func ParseBucketRight(s string, role Role) (bucket string, right Role, err error) {
	bucket, what, given := strings.Cut(s, ":")
	if err := names.CheckBucket(bucket); err != nil {
		return "", NoRole, err
	}
	switch {
	case !given:
		return bucket, min(role, Writer), nil
	case what == "r":
		return bucket, Reader, nil
	case what == "rw":
		return bucket, Writer, nil
	}
	return "", NoRole, errs.New(errs.InvalidArgument, "bucket right", fmt.Sprintf("%q: want NAME, NAME:r or NAME:rw", s))
}

// Check tells whether a certificate can be issued for the rights.
func (r Rights) Check() error {
	bad := func(format string, a ...any) error {
		return errs.New(errs.InvalidArgument, "issue certificate", fmt.Sprintf(format, a...))
	}
	switch {
	case r.Role == NoRole || r.Role > NodeRole:
		return bad("no role")
	case r.Buckets == nil:
		return nil
	case len(r.Buckets) == 0:
		return bad("restricted to no bucket at all")
	case r.Role > Writer:
		return bad("the role %s can't be restricted to buckets", r.Role)
	}
	for b, right := range r.Buckets {
		if err := names.CheckBucket(b); err != nil {
			return err
		}
		if right != Reader && right != Writer || right > r.Role {
			return bad("the role %s can't have the right %s to bucket %s", r.Role, right, b)
		}
	}
	return nil
}

// RightsOf reads a certificate's rights from its URI names: sheaf://role/<role> and,
// when it is restricted, sheaf://bucket/<name>?rights=r or rw for each of its buckets.
// A bucket's name that can't be read restricts all the same.
func RightsOf(c *x509.Certificate) Rights {
	r := Rights{Role: RoleOf(c)}
	for _, u := range c.URIs {
		if u.Scheme != "sheaf" || u.Host != "bucket" {
			continue
		}
		if r.Buckets == nil {
			r.Buckets = map[string]Role{}
		}
		if len(u.Path) < 2 || names.CheckBucket(u.Path[1:]) != nil {
			continue
		}
		switch u.Query().Get("rights") {
		case "r":
			r.Buckets[u.Path[1:]] = max(Reader, r.Buckets[u.Path[1:]])
		case "rw":
			r.Buckets[u.Path[1:]] = Writer
		}
	}
	return r
}

// RoleOf reads the role from a certificate: the URI name sheaf://role/<role>.
func RoleOf(c *x509.Certificate) Role {
	for _, u := range c.URIs {
		if u.Scheme == "sheaf" && u.Host == "role" && len(u.Path) > 1 {
			if r, err := ParseRole(u.Path[1:]); err == nil {
				return r
			}
		}
	}
	return NoRole
}

// uris is the inverse of RightsOf.
func (r Rights) uris() []*url.URL {
	out := []*url.URL{{Scheme: "sheaf", Host: "role", Path: "/" + r.Role.String()}}
	for _, b := range slices.Sorted(maps.Keys(r.Buckets)) {
		right := "r"
		if r.Buckets[b] == Writer {
			right = "rw"
		}
		out = append(out, &url.URL{Scheme: "sheaf", Host: "bucket", Path: "/" + b, RawQuery: "rights=" + right})
	}
	return out
}

// May tells whether the rights reach need for a bucket; "" is all buckets, and the
// cluster itself.
func (r Rights) May(bucket string, need Role) bool {
	return r.Role >= need && (r.Buckets == nil || r.Buckets[bucket] >= need)
}

// Allow is nil when the caller has the rights of need to a bucket; "" is all buckets,
// and the cluster itself. Every handler asks it before it says anything of a bucket,
// whether there is one of that name included.
func (c *ServerCall) Allow(bucket string, need Role) error {
	if c.rights.May(bucket, need) {
		return nil
	}
	msg := fmt.Sprintf("certificate %q has the role %s; this call needs %s", c.Name, c.rights.Role, need)
	switch {
	case c.rights.Role < need:
	case bucket == "":
		msg = fmt.Sprintf("certificate %q is restricted to certain buckets; this call needs %s for all", c.Name, need)
	default:
		msg = fmt.Sprintf("certificate %q is restricted to certain buckets; this call needs %s for this one", c.Name, need)
	}
	return &errs.Error{Code: errs.PermissionDenied, Op: "call", Bucket: bucket, Msg: msg}
}

// Restricted tells whether the caller's certificate is for certain buckets only.
func (c *ServerCall) Restricted() bool { return c.rights.Buckets != nil }
