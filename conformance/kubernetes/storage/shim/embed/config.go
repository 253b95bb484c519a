// Package embed has the part of etcd's package of this name that the tests of
// k8s.io/apiserver use. Its server is not in the process: it starts the program
// that ETCD_BINARY names.
package embed

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"

	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// Config has the settings that these tests change, under etcd's names.
type Config struct {
	// Name of the member.
	Name string
	// Dir is the data directory.
	Dir string
	// UnsafeNoFsync leaves out the syncs.
	UnsafeNoFsync bool

	ListenPeerUrls, AdvertisePeerUrls     []url.URL
	ListenClientUrls, AdvertiseClientUrls []url.URL

	// InitialCluster is the list of NAME=URL of the founding members.
	InitialCluster string
	// ClientTLSInfo has the files for clients; plaintext if it is empty.
	ClientTLSInfo transport.TLSInfo
	// WatchProgressNotifyInterval is the server's default if zero.
	WatchProgressNotifyInterval time.Duration
	// QuotaBackendBytes is the server's default if zero.
	QuotaBackendBytes int64

	// ZapLoggerBuilder takes the logger of the test. The server's log is not
	// sent to it: the end of it is in the error if the server ends by itself.
	ZapLoggerBuilder func(*Config) error
}

// NewConfig has a name and nothing else.
func NewConfig() *Config { return &Config{Name: "default"} }

// InitialClusterFromName is the list of one founding member.
func (c *Config) InitialClusterFromName(name string) string {
	var all []string
	for _, peer := range c.AdvertisePeerUrls {
		all = append(all, name+"="+peer.String())
	}
	return strings.Join(all, ",")
}

// NewZapLoggerBuilder is there because the tests call it.
func NewZapLoggerBuilder(*zap.Logger) func(*Config) error {
	return func(*Config) error { return nil }
}

// flags are those of the program that says what the configuration says.
func (c *Config) flags() []string {
	flags := []string{
		"--name=" + c.Name,
		"--data-dir=" + c.Dir,
		"--listen-peer-urls=" + list(c.ListenPeerUrls),
		"--initial-advertise-peer-urls=" + list(c.AdvertisePeerUrls),
		"--listen-client-urls=" + list(c.ListenClientUrls),
		"--advertise-client-urls=" + list(c.AdvertiseClientUrls),
		"--initial-cluster=" + c.InitialCluster,
	}
	add := func(name, value string) {
		if value != "" {
			flags = append(flags, "--"+name+"="+value)
		}
	}
	add("cert-file", c.ClientTLSInfo.CertFile)
	add("key-file", c.ClientTLSInfo.KeyFile)
	add("trusted-ca-file", c.ClientTLSInfo.TrustedCAFile)
	if c.ClientTLSInfo.ClientCertAuth {
		add("client-cert-auth", "true")
	}
	if c.UnsafeNoFsync {
		add("unsafe-no-fsync", "true")
	}
	if c.WatchProgressNotifyInterval != 0 {
		add("watch-progress-notify-interval", c.WatchProgressNotifyInterval.String())
	}
	if c.QuotaBackendBytes != 0 {
		add("quota-backend-bytes", fmt.Sprint(c.QuotaBackendBytes))
	}
	return flags
}

func list(urls []url.URL) string {
	var all []string
	for _, one := range urls {
		all = append(all, one.String())
	}
	return strings.Join(all, ",")
}
