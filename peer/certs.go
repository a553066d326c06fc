package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"sheaf/internal/errs"
)

// ServerName is the DNS name that every node's certificate bears, and no client's:
// whoever dials a node verifies it, so a client can't pose as a node.
const ServerName = "node.sheaf"

// Files of a certificate folder.
const (
	CACert     = "ca.crt"
	CAKey      = "ca.key"
	NodeName   = "node"   // node.crt, node.key
	ClientName = "client" // client.crt, client.key
)

const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	certLifetime = 2 * 365 * 24 * time.Hour
	backdate     = time.Hour // clocks differ
)

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the system has no randomness: nothing can go on
	}
	return n
}

// InitCA makes a cluster CA in dir. It refuses a folder that has one.
func InitCA(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return errs.Wrap(errs.CodeOf(err), "make certificate folder", err)
	}
	if _, err := os.Stat(filepath.Join(dir, CACert)); err == nil {
		return errs.New(errs.AlreadyExists, "make CA", filepath.Join(dir, CACert)+" is there already")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return errs.Wrap(errs.Internal, "make CA", err)
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "sheaf cluster CA"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return errs.Wrap(errs.Internal, "make CA", err)
	}
	if err := writeKey(filepath.Join(dir, CAKey), key); err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, CACert), "CERTIFICATE", der, 0o644)
}

// Issue is IssueRights for a role without restriction.
func Issue(caDir, outDir, file, name string, role Role) error {
	return IssueRights(caDir, outDir, file, name, Rights{Role: role})
}

// IssueRights signs a certificate with the CA in caDir and writes <file>.crt,
// <file>.key and ca.crt to outDir. name is its common name.
func IssueRights(caDir, outDir, file, name string, r Rights) error {
	if err := r.Check(); err != nil {
		return err
	}
	ca, err := tls.LoadX509KeyPair(filepath.Join(caDir, CACert), filepath.Join(caDir, CAKey))
	if err != nil {
		return loadErr("load CA", err, "make one with 'sheaf cert init'")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return errs.Wrap(errs.Internal, "issue certificate", err)
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-backdate),
		NotAfter:     now.Add(certLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs:         r.uris(),
	}
	if r.Role == NodeRole {
		t.DNSNames = []string{ServerName}
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		return errs.Wrap(errs.Internal, "issue certificate", err)
	}
	if err := os.MkdirAll(outDir, 0o700); err != nil {
		return errs.Wrap(errs.CodeOf(err), "make certificate folder", err)
	}
	if filepath.Clean(caDir) != filepath.Clean(outDir) {
		if err := writePEM(filepath.Join(outDir, CACert), "CERTIFICATE", ca.Certificate[0], 0o644); err != nil {
			return err
		}
	}
	if err := writeKey(filepath.Join(outDir, file+".key"), key); err != nil {
		return err
	}
	return writePEM(filepath.Join(outDir, file+".crt"), "CERTIFICATE", der, 0o644)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return errs.Wrap(errs.Internal, "write key", err)
	}
	return writePEM(path, "PRIVATE KEY", der, 0o600)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode); err != nil {
		return errs.Wrap(errs.CodeOf(err), "write certificate", err)
	}
	return errs.Wrap(errs.Internal, "write certificate", os.Rename(tmp, path))
}

func loadErr(op string, err error, hint string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errs.New(errs.NotFound, op, err.Error()+": "+hint)
	}
	return errs.Wrap(errs.InvalidArgument, op, err)
}

// Identity is a certificate with its key and the CA that all peers must have.
type Identity struct {
	Name string
	Role Role
	// Cluster is the cluster's id: nodes with the same CA are one cluster.
	Cluster string
	cert    tls.Certificate
	pool    *x509.CertPool
}

// LoadIdentity reads <file>.crt, <file>.key and ca.crt from dir.
func LoadIdentity(dir, file string) (*Identity, error) {
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, file+".crt"), filepath.Join(dir, file+".key"))
	if err != nil {
		return nil, loadErr("load certificate", err, "make certificates with 'sheaf cert init', or name their folder with --certs")
	}
	pemBytes, err := os.ReadFile(filepath.Join(dir, CACert))
	if err != nil {
		return nil, loadErr("load CA certificate", err, "it comes with 'sheaf cert issue'")
	}
	id := &Identity{Name: cert.Leaf.Subject.CommonName, Role: RoleOf(cert.Leaf), cert: cert, pool: x509.NewCertPool()}
	if !id.pool.AppendCertsFromPEM(pemBytes) {
		return nil, errs.New(errs.InvalidArgument, "load CA certificate", filepath.Join(dir, CACert)+" has no certificate")
	}
	if block, _ := pem.Decode(pemBytes); block != nil {
		sum := sha256.Sum256(block.Bytes)
		id.Cluster = hex.EncodeToString(sum[:8])
	}
	if id.Role == NoRole {
		return nil, errs.New(errs.InvalidArgument, "load certificate", filepath.Join(dir, file+".crt")+" has no Sheaf role: it wasn't made by 'sheaf cert'")
	}
	return id, nil
}
