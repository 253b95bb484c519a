// Command etcd is the genuine etcd server, built from its module, so that a
// test or a benchmark can run it beside Cairn.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
