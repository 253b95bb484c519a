package process

import (
	"io"
	"net/http"
	"testing"

	"cairn.dev/conformance/harness"
	dto "github.com/prometheus/client_model/go"
)

type answer struct {
	status      int
	contentType string
	body        string
}

func ask(t *testing.T, server *harness.Server, verb, path string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(harness.Context(t), verb, server.URL(path), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header.Get("Content-Type"), string(body)}
}

// The HTTP pages of the client port say what etcd's say.
func TestPages(t *testing.T) {
	etcd, subject := harness.StartPair(t)
	compare := func() {
		t.Helper()
		for _, page := range [][2]string{
			{"GET", "/health"}, {"GET", "/health?serializable=true"}, {"GET", "/health?exclude=NOSPACE"},
			{"GET", "/health?exclude=NOSPACE&exclude=CORRUPT"}, {"GET", "/health?exclude=other"},
			{"POST", "/health"}, {"HEAD", "/health"},
			{"GET", "/version"}, {"POST", "/version"}, {"HEAD", "/version"},
			{"GET", "/no/such/page"},
		} {
			want, got := ask(t, etcd, page[0], page[1]), ask(t, subject, page[0], page[1])
			if page[1] == "/no/such/page" {
				want.body, got.body = "", ""
			}
			if want != got {
				t.Errorf("%s %s:\n-%+v\n+%+v", page[0], page[1], want, got)
			}
		}
	}
	compare()
	for _, server := range []*harness.Server{etcd, subject} {
		raiseNoSpace(t, server)
	}
	compare()
}

func value(family *dto.MetricFamily) float64 {
	metric := family.Metric[0]
	return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
}
