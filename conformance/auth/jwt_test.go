package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"github.com/golang-jwt/jwt/v5"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// write puts PEM blocks into a file.
func write(t *testing.T, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// newKey is a key for the method, and its private and public file.
func newKey(t *testing.T, method jwt.SigningMethod) (key crypto.Signer, private, public string) {
	t.Helper()
	var err error
	switch method := method.(type) {
	case *jwt.SigningMethodECDSA:
		curve := map[int]elliptic.Curve{256: elliptic.P256(), 384: elliptic.P384(), 521: elliptic.P521()}[method.CurveBits]
		key, err = ecdsa.GenerateKey(curve, rand.Reader)
	case *jwt.SigningMethodEd25519:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	public = write(t, "public", "PUBLIC KEY", der)
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		der, err = x509.MarshalECPrivateKey(key)
		private = write(t, "private", "EC PRIVATE KEY", der)
	case *rsa.PrivateKey:
		private = write(t, "private", "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
	default:
		der, err = x509.MarshalPKCS8PrivateKey(key)
		private = write(t, "private", "PRIVATE KEY", der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key, private, public
}

// Tokens of every method: the server's are read by the library, the library's
// are taken by the server, and nothing else is.
func TestJWT(t *testing.T) {
	for _, method := range []jwt.SigningMethod{
		jwt.SigningMethodRS256, jwt.SigningMethodPS384, jwt.SigningMethodES256, jwt.SigningMethodES384, jwt.SigningMethodES512,
		jwt.SigningMethodEdDSA, jwt.SigningMethodHS256,
	} {
		t.Run(method.Alg(), func(t *testing.T) { testMethod(t, method) })
	}
}

func testMethod(t *testing.T, method jwt.SigningMethod) {
	var key, public any
	var flag string
	if strings.HasPrefix(method.Alg(), "HS") {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte("a shared secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		key, public, flag = []byte("a shared secret"), []byte("a shared secret"), "priv-key="+path
	} else {
		signer, privateFile, publicFile := newKey(t, method)
		key, public, flag = signer, signer.Public(), "pub-key="+publicFile+",priv-key="+privateFile
	}
	s := startWithUsers(t, "--auth-token=jwt,"+flag+",sign-method="+method.Alg()+",ttl=1h")
	read := &pb.RangeRequest{Key: []byte("b")}
	s.must(t, "ann", read)
	s.refused(t, "ann", codes.PermissionDenied, &pb.RangeRequest{Key: []byte("a")})
	claims := jwt.MapClaims{}
	parsed, err := jwt.ParseWithClaims(s.tokens["ann"], claims, func(*jwt.Token) (any, error) { return public, nil }, jwt.WithValidMethods([]string{method.Alg()}))
	if err != nil || !parsed.Valid || claims["username"] != "ann" {
		t.Fatalf("the library reads %v: %v", claims, err)
	}
	revision := claims["revision"]
	sign := func(method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
		token, err := jwt.NewWithClaims(method, claims).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	soon := time.Now().Add(time.Hour).Unix()
	s.tokens["own"] = sign(method, key, jwt.MapClaims{"username": "ann", "revision": revision, "exp": soon})
	s.must(t, "own", read)
	s.must(t, "own", &pb.PutRequest{Key: []byte("b"), Value: []byte("x")})
	var foreign any = []byte("another secret")
	if !strings.HasPrefix(method.Alg(), "HS") {
		foreign, _, _ = newKey(t, method)
	}
	none := sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, jwt.MapClaims{"username": "root", "revision": revision, "exp": soon})
	whole := strings.Split(s.tokens["own"], ".")
	forged := base64.RawURLEncoding.EncodeToString([]byte(`{"username":"root","revision":1,"exp":99999999999}`))
	publicPem, _ := os.ReadFile(strings.TrimPrefix(strings.Split(flag, ",")[0], "pub-key="))
	for name, token := range map[string]string{
		"none":            none,
		"no signature":    whole[0] + "." + whole[1] + ".",
		"other claims":    whole[0] + "." + forged + "." + whole[2],
		"foreign key":     sign(method, foreign, jwt.MapClaims{"username": "root", "revision": revision, "exp": soon}),
		"secret from key": sign(jwt.SigningMethodHS256, publicPem, jwt.MapClaims{"username": "root", "revision": revision, "exp": soon}),
		"expired":         sign(method, key, jwt.MapClaims{"username": "root", "revision": revision, "exp": soon - 2*3600}),
		"nobody":          sign(method, key, jwt.MapClaims{"revision": revision, "exp": soon}),
		"no revision":     sign(method, key, jwt.MapClaims{"username": "root", "exp": soon}),
		"simple":          "AAAAAAAAAAAAAAAA.5",
	} {
		if name == "secret from key" && method.Alg() == "HS256" {
			continue
		}
		s.tokens["odd"] = token
		t.Run(name, func(t *testing.T) { s.refused(t, "odd", codes.Unauthenticated, read, &pb.PutRequest{Key: []byte("b")}) })
	}
	s.tokens["missing"] = sign(method, key, jwt.MapClaims{"username": "missing", "revision": revision, "exp": soon})
	s.refused(t, "missing", codes.PermissionDenied, read, &pb.PutRequest{Key: []byte("b")})
	// A change of users or permissions makes tokens old.
	s.must(t, "root", &pb.AuthRoleAddRequest{Name: "later"})
	s.refused(t, "ann", codes.InvalidArgument, read, &pb.PutRequest{Key: []byte("b")})
	s.login(t, "ann", "ann-pw")
	s.must(t, "ann", read)
}

// With the public key alone tokens are taken and not given out.
func TestVerifyOnly(t *testing.T) {
	key, _, public := newKey(t, jwt.SigningMethodES256)
	server := harness.Start(t, harness.Subject(), "--bcrypt-cost=4", "--auth-token=jwt,pub-key="+public+",sign-method=ES256")
	s := &side{server: server, conn: server.Conn(), tokens: map[string]string{}}
	s.must(t, nobody, &pb.AuthUserAddRequest{Name: "root", Password: "pw"})
	s.must(t, nobody, &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
	s.must(t, nobody, &pb.AuthEnableRequest{})
	s.refused(t, nobody, codes.Unknown, &pb.AuthenticateRequest{Name: "root", Password: "pw"})
	s.refused(t, nobody, codes.InvalidArgument, &pb.AuthenticateRequest{Name: "root", Password: "wrong"})
	revision := s.must(t, nobody, &pb.AuthStatusRequest{}).(*pb.AuthStatusResponse).AuthRevision
	token, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"username": "root", "revision": revision}).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	s.tokens["root"] = token
	s.must(t, "root", &pb.AuthUserListRequest{})
}

// Flags that cannot be right end the start with a sentence that names them.
func TestTokenFlags(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("the sentences are Cairn's")
	}
	_, private, public := newKey(t, jwt.SigningMethodES256)
	_, other, _ := newKey(t, jwt.SigningMethodES256)
	for _, flag := range []string{
		"complicated", "jwt", "jwt,sign-method=ES256", "jwt,sign-method=none,pub-key=" + public, "jwt,pub-key=" + public,
		"jwt,sign-method=RS256,pub-key=" + public, "jwt,sign-method=ES384,priv-key=" + private, "jwt,sign-method=ES256,pub-key=/nowhere",
		"jwt,sign-method=ES256,pub-key=" + public + ",ttl=soon", "jwt,sign-method=ES256,pub-key=" + public + ",priv-key=" + other,
		"jwt,sign-method=ES256,pub-key=" + public + ",pub-key=" + public, "jwt,colour=red",
	} {
		server := harness.Prepare(t, harness.Subject(), filepath.Join(t.TempDir(), "data"), "--auth-token="+flag)
		if err := server.TryRun(time.Minute); err == nil || !strings.Contains(err.Error(), "auth-token") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// What comes behind the kind of a token is taken or refused as the genuine
// server does it. What it does not know means nothing.
func TestTokenOptions(t *testing.T) {
	_, private, public := newKey(t, jwt.SigningMethodRS256)
	keys := "jwt,sign-method=RS256,pub-key=" + public + ",priv-key=" + private
	for _, flag := range []string{
		"simple", "simple,ttl=5m", "simple,a=b", "simple,=", "simple,", "simple,a", "simple,a=b=c", "simple,a=b,a=c", "Simple",
		"", ",a=b", ",a", "jwt", keys, keys + ",a=b", keys + ",", keys + ",a", keys + ",a=b,a=c", keys + ",sign-method=RS256",
	} {
		var errs [2]error
		for at, kind := range []harness.Kind{harness.Etcd, harness.Subject()} {
			server := harness.Prepare(t, kind, filepath.Join(t.TempDir(), "data"), "--auth-token="+flag)
			if errs[at] = server.TryRun(time.Minute); errs[at] == nil {
				server.Kill()
			}
		}
		if (errs[0] == nil) != (errs[1] == nil) {
			t.Errorf("%q: etcd %v, %s %v", flag, errs[0], harness.Subject(), errs[1])
		}
	}
}

// With no kind of token at all nobody can log in.
func TestNoTokens(t *testing.T) {
	s := startSides(t, "--auth-token=", "--bcrypt-cost=4")
	for _, request := range []proto.Message{
		&pb.AuthUserAddRequest{Name: "root", Password: "pw"},
		&pb.AuthUserGrantRoleRequest{User: "root", Role: "root"},
		&pb.AuthEnableRequest{},
		&pb.AuthenticateRequest{Name: "root", Password: "pw"},
		&pb.AuthenticateRequest{Name: "root", Password: "wrong"},
		&pb.AuthenticateRequest{Name: "other", Password: "pw"},
	} {
		s.same(nobody, request)
	}
	for _, user := range []string{nobody, stranger} {
		s.same(user, &pb.RangeRequest{Key: key("a")})
		s.same(user, &pb.AuthUserListRequest{})
	}
}
