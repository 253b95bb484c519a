// Package tls talks TLS to the server: who is let in, what changes without a
// restart, and what a handshake may cost.
package tls

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

var serials atomic.Int64

// authority signs certificates.
type authority struct {
	t           testing.TB
	dir         string
	certificate *x509.Certificate
	key         crypto.Signer
	// file is the authority's own certificate.
	file string
}

// pair is a certificate with its key, in files.
type pair struct {
	cert, key string
	serial    *big.Int
	tls       tls.Certificate
}

// want says what a certificate is to be like.
type want struct {
	name  string
	ips   []string
	hosts []string
	// until is how long it is valid from now on; a day if zero.
	until time.Duration
	usage []x509.ExtKeyUsage
}

// Set is an authority and a certificate of it that members on 127.0.0.1 (and other hosts) and their
// clients show each other, for tests of other packages.
type Set struct {
	Authority, Cert, Key string
	Client               *tls.Config
}

// NewSet makes one.
func NewSet(t testing.TB, hosts ...string) Set {
	t.Helper()
	authority := newAuthority(t, "authority")
	own := authority.issue("own", want{name: "own", ips: []string{"127.0.0.1"}, hosts: hosts})
	return Set{authority.file, own.cert, own.key, authority.trust(own)}
}

// MemberFlags have a member show the certificate, and let nobody in without one.
func (s Set) MemberFlags() []string {
	return []string{
		"--cert-file=" + s.Cert, "--key-file=" + s.Key, "--trusted-ca-file=" + s.Authority, "--client-cert-auth",
		"--peer-cert-file=" + s.Cert, "--peer-key-file=" + s.Key, "--peer-trusted-ca-file=" + s.Authority, "--peer-client-cert-auth",
	}
}

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func write(t testing.TB, path, kind string, bytes []byte) string {
	t.Helper()
	// As a whole: half a file is another test.
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	return makeAuthority(t, name, nil)
}

// intermediate is an authority below this one.
func (a *authority) intermediate(name string) *authority {
	a.t.Helper()
	return makeAuthority(a.t, name, a)
}

func makeAuthority(t testing.TB, name string, above *authority) *authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1000 + serials.Add(1)), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	parent, signer := template, key
	if above != nil {
		parent, signer = above.certificate, above.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "ca.crt"), "CERTIFICATE", der)
	return &authority{t: t, dir: dir, certificate: certificate, key: key, file: file}
}

// issue signs a certificate into files of that name, replacing what is there.
func (a *authority) issue(file string, want want) pair {
	a.t.Helper()
	if want.until == 0 {
		want.until = 24 * time.Hour
	}
	if want.usage == nil {
		want.usage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	key := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1000 + serials.Add(1)), Subject: pkix.Name{CommonName: want.name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(want.until),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: want.usage, DNSNames: want.hosts,
	}
	for _, ip := range want.ips {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	base := filepath.Join(a.dir, file)
	pair := pair{
		key: write(a.t, base+".key", "PRIVATE KEY", encoded), cert: write(a.t, base+".crt", "CERTIFICATE", der),
		serial: template.SerialNumber,
	}
	if pair.tls, err = tls.LoadX509KeyPair(pair.cert, pair.key); err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// server issues a certificate for 127.0.0.1 and localhost.
func (a *authority) server(file string) pair {
	return a.issue(file, want{name: "server", ips: []string{"127.0.0.1"}, hosts: []string{"localhost"}})
}

// client issues a certificate for somebody.
func (a *authority) client(name string) pair { return a.issue(name, want{name: name}) }

// revoke writes a list of revoked certificates, as DER: the genuine server
// reads nothing else.
func (a *authority) revoke(file string, pairs ...pair) string {
	a.t.Helper()
	list := &x509.RevocationList{
		Number: big.NewInt(serials.Add(1)), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(time.Hour),
	}
	for _, pair := range pairs {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: pair.serial, RevocationTime: time.Now()})
	}
	signer := *a.certificate
	der, err := x509.CreateRevocationList(rand.Reader, list, &signer, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	path := filepath.Join(a.dir, file)
	if err := os.WriteFile(path+".new", der, 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// trust is a client's configuration that trusts the authority, with
// certificates to show.
func (a *authority) trust(show ...pair) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	for _, pair := range show {
		config.Certificates = append(config.Certificates, pair.tls)
	}
	return config
}
