package plane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// certificates are the files of one control plane: an authority, the API
// server's certificate, and a certificate for each of its clients.
type certificates struct {
	dir       string
	authority *x509.Certificate
	key       *ecdsa.PrivateKey
	issued    int64
}

const lifetime = 24 * time.Hour

func newCertificates(t testing.TB, dir string) *certificates {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &certificates{dir: dir, key: key, issued: 1}
	c.authority = &x509.Certificate{
		SerialNumber: big.NewInt(c.issued), Subject: pkix.Name{CommonName: "the test's authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, c.authority, c.authority, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	writePem(t, c.path("ca.crt"), "CERTIFICATE", der)

	accounts, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	writeKey(t, c.path("accounts.key"), accounts)
	return c
}

func (c *certificates) path(name string) string { return filepath.Join(c.dir, name) }

// server issues NAME.crt and NAME.key for the hosts.
func (c *certificates) server(t testing.TB, name string, hosts ...string) {
	t.Helper()
	certificate := &x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, host := range hosts {
		if address := net.ParseIP(host); address != nil {
			certificate.IPAddresses = append(certificate.IPAddresses, address)
		} else {
			certificate.DNSNames = append(certificate.DNSNames, host)
		}
	}
	c.issue(t, name, certificate)
}

// client issues NAME.crt and NAME.key for a user of the API server.
func (c *certificates) client(t testing.TB, name, user string, groups ...string) {
	t.Helper()
	c.issue(t, name, &x509.Certificate{
		Subject: pkix.Name{CommonName: user, Organization: groups}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (c *certificates) issue(t testing.TB, name string, certificate *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.issued++
	certificate.SerialNumber = big.NewInt(c.issued)
	certificate.NotBefore, certificate.NotAfter = c.authority.NotBefore, c.authority.NotAfter
	certificate.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, certificate, c.authority, &key.PublicKey, c.key)
	if err != nil {
		t.Fatal(err)
	}
	writePem(t, c.path(name+".crt"), "CERTIFICATE", der)
	writeKey(t, c.path(name+".key"), key)
}

// kubeconfig writes NAME.kubeconfig for a client with NAME's certificate.
func (c *certificates) kubeconfig(t testing.TB, name, url string) string {
	t.Helper()
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: %[1]s}}]
clusters: [{name: test, cluster: {server: %[2]s, certificate-authority: %[3]s}}]
users: [{name: %[1]s, user: {client-certificate: %[4]s, client-key: %[5]s}}]
`, name, url, c.path("ca.crt"), c.path(name+".crt"), c.path(name+".key"))
	path := c.path(name + ".kubeconfig")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeKey(t testing.TB, path string, key crypto.PrivateKey) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePem(t, path, "PRIVATE KEY", der)
}

func writePem(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
