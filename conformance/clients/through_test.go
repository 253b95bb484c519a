package clients

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// putsBetween is how many keys are written between two faults.
const putsBetween = 20

// TestPythonThroughProxies has the package etcd3 of PyPI behind a gateway and a
// gRPC proxy.
func TestPythonThroughProxies(t *testing.T) { through(t, python) }

// TestJavaThroughProxies has jetcd behind a gateway and a gRPC proxy.
func TestJavaThroughProxies(t *testing.T) { through(t, java) }

// through runs a client's program against a gateway and a gRPC proxy: all
// areas, and a watch that must see every event once while members are killed.
func through(t *testing.T, install func(t *testing.T) program) {
	program := install(t)
	for name, front := range map[string]func(testing.TB, []string, ...string) *harness.Proxy{
		"gateway": harness.StartGateway, "grpc-proxy": harness.StartGrpcProxy,
	} {
		t.Run(name, func(t *testing.T) {
			server := harness.Start(t, harness.Subject())
			program.run(t, "ENDPOINT="+front(t, []string{server.Endpoint()}).Address)
		})
		t.Run(name+"/follow", func(t *testing.T) {
			cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
			var endpoints []string
			for _, member := range cluster.Members {
				endpoints = append(endpoints, member.Endpoint())
			}
			program.follow(t, cluster, front(t, endpoints).Address)
		})
	}
}

// follow has the program watch what is written while each member is killed and
// comes back.
func (p *program) follow(t *testing.T, cluster *harness.Cluster, endpoint string) {
	ctx, client := harness.Context(t), cluster.Client()
	var wanted []string
	put := func(key string) int64 {
		t.Helper()
		wanted = append(wanted, key)
		for {
			call, done := context.WithTimeout(ctx, 5*time.Second)
			// Once, although it may have to be asked for twice.
			answer, err := client.Txn(call).If(clientv3.Compare(clientv3.Version(key), "=", 0)).Then(clientv3.OpPut(key, "")).Commit()
			done()
			if err == nil {
				return answer.Header.Revision
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	}
	from := put("follow/first")
	command := exec.Command(p.command[0], append(p.command[1:], "follow")...)
	command.Env = append(append(command.Environ(), p.env...), "ENDPOINT="+endpoint, fmt.Sprint("FROM=", from))
	var output, complaints bytes.Buffer
	command.Stdout, command.Stderr = &output, &complaints
	command.WaitDelay = time.Second
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(programMax, func() { command.Process.Kill() })
	defer timer.Stop()
	for number, member := range cluster.Members {
		for step, fault := range []func(){member.Kill, member.Run} {
			for key := range putsBetween {
				put(fmt.Sprintf("follow/%d-%d-%d", number, step, key))
			}
			fault()
		}
	}
	put("follow/end")
	err := command.Wait()
	var seen []string
	again := 0
	for lines := bufio.NewScanner(&output); lines.Scan(); {
		switch words := strings.Fields(lines.Text()); {
		case len(words) == 3 && words[0] == "event":
			seen = append(seen, words[2])
		case len(words) > 0 && words[0] == "again":
			again++
		}
	}
	if err != nil || strings.Join(seen, " ") != strings.Join(wanted, " ") {
		t.Errorf("%s saw %d events of %d (%v): %q\n%s", p.name, len(seen), len(wanted), err, seen, complaints.Bytes())
	}
	t.Logf("%d events; the program began its watch again %d times", len(seen), again)
}
