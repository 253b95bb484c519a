package process

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// traces is a collector that keeps what it is sent.
type traces struct {
	collector.UnimplementedTraceServiceServer
	mutex     sync.Mutex
	spans     []*trace.Span
	resources map[string]bool
}

func (c *traces) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, resource := range request.ResourceSpans {
		for _, attribute := range resource.Resource.Attributes {
			c.resources[attribute.Key+"="+attribute.Value.GetStringValue()] = true
		}
		for _, scope := range resource.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// collect starts a collector.
func collect(t *testing.T) (*traces, string) {
	t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", harness.Port(t)))
	if err != nil {
		t.Fatal(err)
	}
	server, kept := grpc.NewServer(), &traces{resources: map[string]bool{}}
	collector.RegisterTraceServiceServer(server, kept)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return kept, listener.Addr().String()
}

// named waits for the spans of the given names and returns them.
func (c *traces) named(t *testing.T, names ...string) map[string]*trace.Span {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		found := map[string]*trace.Span{}
		c.mutex.Lock()
		for _, span := range c.spans {
			if slices.Contains(names, span.Name) {
				found[span.Name] = span
			}
		}
		c.mutex.Unlock()
		if len(found) == len(names) {
			return found
		}
		if time.Now().After(deadline) {
			t.Fatalf("of %q only %d came", names, len(found))
		}
	}
}

func attributes(span *trace.Span) map[string]string {
	all := map[string]string{}
	for _, attribute := range span.Attributes {
		all[attribute.Key] = attribute.Value.String()
	}
	return all
}

// Spans have etcd's names, and what they tell of a request is etcd's.
func TestTraces(t *testing.T) {
	names := []string{
		"etcdserverpb.KV/Put", "put", "etcdserverpb.KV/Range", "range", "etcdserverpb.KV/Txn", "txn",
		"etcdserverpb.KV/DeleteRange", "delete_range", "etcdserverpb.KV/Compact", "compact",
		"etcdserverpb.Lease/LeaseGrant", "lease_grant", "etcdserverpb.Lease/LeaseRevoke", "lease_revoke",
	}
	var sides []map[string]*trace.Span
	for _, kind := range []harness.Kind{harness.Etcd, harness.Subject()} {
		kept, address := collect(t)
		server := harness.Start(t, kind, "--enable-distributed-tracing", "--distributed-tracing-address="+address,
			"--distributed-tracing-service-name=service", "--distributed-tracing-instance-id=instance",
			"--distributed-tracing-sampling-rate=1000000")
		client, ctx := server.Client(), harness.Context(t)
		must := func(_ any, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(client.Put(ctx, "key", "secret"))
		must(client.Get(ctx, "key", clientv3.WithLimit(7)))
		must(client.Txn(ctx).If(clientv3.Compare(clientv3.Version("key"), "=", 1)).
			Then(clientv3.OpPut("key", "secret"), clientv3.OpGet("other")).Else(clientv3.OpGet("key")).Commit())
		must(client.Delete(ctx, "key"))
		must(client.Compact(ctx, 2))
		must(client.Grant(ctx, 100))
		must(client.Grant(ctx, 100))
		lease, err := client.Grant(ctx, 100)
		must(lease, err)
		must(client.Revoke(ctx, lease.ID))
		spans := kept.named(t, names...)
		for _, span := range spans {
			if text := fmt.Sprint(attributes(span)); strings.Contains(text, "secret") {
				t.Errorf("%s tells a value: %s", span.Name, text)
			}
		}
		for _, want := range []string{"service.name=service", "service.instance.id=instance"} {
			if !kept.resources[want] {
				t.Errorf("no %s among %v", want, kept.resources)
			}
		}
		sides = append(sides, spans)
	}
	for _, name := range names {
		want, got := sides[0][name], sides[1][name]
		if want.Kind != got.Kind || len(want.TraceId) != len(got.TraceId) || len(want.SpanId) != len(got.SpanId) ||
			len(want.ParentSpanId) != len(got.ParentSpanId) || got.EndTimeUnixNano < got.StartTimeUnixNano {
			t.Errorf("%s is\n %v, etcd's is\n %v", name, got, want)
		}
		if strings.Contains(name, "/") {
			continue
		}
		given := attributes(got)
		for key, value := range attributes(want) {
			if given[key] != value && key != "id" {
				t.Errorf("%s: %s is %q, etcd's is %q", name, key, given[key], value)
			}
		}
	}
}

// A caller's trace goes on, as sampled as the caller has it.
func TestTraceContext(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Etcd, harness.Subject()} {
		kept, address := collect(t)
		server := harness.Start(t, kind, "--enable-distributed-tracing", "--distributed-tracing-address="+address)
		client := server.Client()
		const id = "0af7651916cd43dd8448eb211c80319c"
		for _, flags := range []string{"00", "01"} {
			ctx := metadata.AppendToOutgoingContext(harness.Context(t), "traceparent", "00-"+id+"-b7ad6b7169203331-"+flags)
			if _, err := client.Put(ctx, "key"+flags, "value"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := client.Put(harness.Context(t), "without", "value"); err != nil {
			t.Fatal(err)
		}
		spans := kept.named(t, "etcdserverpb.KV/Put", "put")
		outer := spans["etcdserverpb.KV/Put"]
		if got := fmt.Sprintf("%x %x", outer.TraceId, outer.ParentSpanId); got != id+" b7ad6b7169203331" {
			t.Errorf("%s: the span is part of %s", kind, got)
		}
		if string(spans["put"].ParentSpanId) != string(outer.SpanId) {
			t.Errorf("%s: the inner span is not inside the outer one", kind)
		}
		time.Sleep(1500 * time.Millisecond)
		kept.mutex.Lock()
		if len(kept.spans) != 2 {
			t.Errorf("%s: %d spans, not the two of the sampled call", kind, len(kept.spans))
		}
		kept.mutex.Unlock()
	}
}

// A collector that is not there costs spans, and nothing else.
func TestNoCollector(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("what is counted is not etcd's")
	}
	server := harness.Start(t, harness.Cairn, "--enable-distributed-tracing",
		fmt.Sprintf("--distributed-tracing-address=127.0.0.1:%d", harness.Port(t)), "--distributed-tracing-sampling-rate=1000000")
	client := server.Client()
	for i := range 3000 {
		if _, err := client.Put(harness.Context(t), fmt.Sprint(i%10), "value"); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); value(families(t, server)["cairn_trace_spans_dropped_total"]) == 0; {
		if time.Sleep(100 * time.Millisecond); time.Now().After(deadline) {
			t.Fatal("no span was dropped")
		}
	}
}
