package wire

import "testing"

// Paths without a method behind them.
func TestUnknownPaths(t *testing.T) {
	both := startSides(t)
	for _, path := range []string{
		"/no.Such/Method",
		"/etcdserverpb.KV/NoSuchMethod",
		"/etcdserverpb.KV/range",
		"/etcdserverpb.kv/Range",
		"/etcdserverpb.KV/",
		"/etcdserverpb.KV/Range/",
		"//etcdserverpb.KV/Range",
		"/etcdserverpb.NoService/Range",
		"/",
		"/x",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
	} {
		both.same("empty", path, nil)
		both.same("nonsense", path, []byte("\xff\xff\xff"))
	}
}
