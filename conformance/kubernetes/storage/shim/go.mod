module go.etcd.io/etcd/server/v3

go 1.26.0

require (
	go.etcd.io/etcd/client/pkg/v3 v3.7.0
	go.uber.org/zap v1.27.1
)

require (
	go.uber.org/multierr v1.11.0 // indirect
	golang.org/x/sys v0.45.0 // indirect
)
