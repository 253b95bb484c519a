package clients

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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

	"cairn.dev/conformance/harness"
)

// pair names the files of a certificate and its key.
type pair struct{ certificate, key string }

// certificates are files in the form that all clients read: PEM, keys as PKCS #8.
type certificates struct {
	authority      string
	server, client pair
}

// makeCertificates makes an authority, and a server and a client that it vouches
// for. The client's has no common name, so that it stands for no user.
func makeCertificates(t *testing.T) certificates {
	t.Helper()
	dir := t.TempDir()
	authorityKey := newKey(t)
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Cairn's test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	sign := func(name string, serial int64, usage x509.ExtKeyUsage, subject pkix.Name) pair {
		key := newKey(t)
		template := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: subject, NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
			DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}
		signed, err := x509.CreateCertificate(rand.Reader, template, authority, &key.PublicKey, authorityKey)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return pair{
			writePEM(t, filepath.Join(dir, name+".crt"), "CERTIFICATE", signed),
			writePEM(t, filepath.Join(dir, name+".key"), "PRIVATE KEY", secret),
		}
	}
	itself, err := x509.CreateCertificate(rand.Reader, authority, authority, &authorityKey.PublicKey, authorityKey)
	if err != nil {
		t.Fatal(err)
	}
	return certificates{
		authority: writePEM(t, filepath.Join(dir, "ca.crt"), "CERTIFICATE", itself),
		server:    sign("server", 2, x509.ExtKeyUsageServerAuth, pkix.Name{CommonName: "server"}),
		client:    sign("client", 3, x509.ExtKeyUsageClientAuth, pkix.Name{Organization: []string{"Cairn's tests"}}),
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writePEM(t *testing.T, path, kind string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startTLS starts a server whose client port speaks TLS and asks for a
// certificate.
func startTLS(t *testing.T, files certificates) *harness.Server {
	t.Helper()
	server := harness.Prepare(t, harness.Subject(), filepath.Join(t.TempDir(), "data"))
	// The usual flags name URLs without TLS.
	server.Bare = true
	client := "https://" + server.Endpoint()
	server.SetFlags(
		"--name="+server.Name, "--data-dir="+server.DataDir, "--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+server.PeerURL(), "--initial-advertise-peer-urls="+server.PeerURL(),
		fmt.Sprintf("--initial-cluster=%s=%s", server.Name, server.PeerURL()),
		"--cert-file="+files.server.certificate, "--key-file="+files.server.key,
		"--trusted-ca-file="+files.authority, "--client-cert-auth",
	)
	server.Run()
	return server
}
