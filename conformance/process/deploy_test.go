package process

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
	dto "github.com/prometheus/client_model/go"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.yaml.in/yaml/v2"
)

const deploy = "../../deploy"

// expression is a query of an alert or a panel.
type expression struct{ where, text string }

// alerts are the expressions of the rules.
func alerts(t *testing.T) (expressions []expression) {
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string            `yaml:"alert"`
				Expr        string            `yaml:"expr"`
				For         string            `yaml:"for"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"rules"`
			Name string `yaml:"name"`
		} `yaml:"groups"`
	}
	content, err := os.ReadFile(filepath.Join(deploy, "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, &file); err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" || rule.Annotations["summary"] == "" || !slices.Contains([]string{"warning", "critical"}, rule.Labels["severity"]) {
				t.Errorf("%+v: no name, summary or severity", rule)
			}
			expressions = append(expressions, expression{rule.Alert, rule.Expr})
		}
	}
	return expressions
}

// panels are the expressions of the dashboard.
func panels(t *testing.T) (expressions []expression) {
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Query any }
		}
	}
	content, err := os.ReadFile(filepath.Join(deploy, "grafana.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &board); err != nil {
		t.Fatal(err)
	}
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			text := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*").Replace(target.Expr)
			expressions = append(expressions, expression{panel.Title, text})
		}
	}
	return expressions
}

var (
	quoted   = regexp.MustCompile(`"[^"]*"`)
	duration = regexp.MustCompile(`\[[0-9]+[smhd]\]`)
	selector = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^{}]*)\}`)
	grouping = regexp.MustCompile(`\b(by|without)\s*\(([^()]*)\)`)
	label    = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)`)
	word     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	known    = []string{
		"sum", "max", "min", "count", "avg", "rate", "increase", "histogram_quantile", "predict_linear", "floor", "time", "and",
		"or", "unless",
	}
	// withTLS are metrics that only members with certificates show.
	withTLS = []string{"cairn_tls_certificate_expiry_timestamp_seconds"}
)

// check reads an expression and compares all that it names with the page.
func (e expression) check(t *testing.T, page map[string]*dto.MetricFamily) {
	t.Helper()
	text := quoted.ReplaceAllString(e.text, `""`)
	depth := 0
	for _, letter := range text {
		switch letter {
		case '(', '{', '[':
			depth++
		case ')', '}', ']':
			depth--
		}
		if depth < 0 {
			break
		}
	}
	if depth != 0 {
		t.Errorf("%s: unbalanced: %s", e.where, e.text)
	}
	text = duration.ReplaceAllString(text, "")
	var named []string
	for _, found := range grouping.FindAllStringSubmatch(text, -1) {
		named = append(named, word.FindAllString(found[2], -1)...)
	}
	text = grouping.ReplaceAllString(text, "")
	for _, found := range selector.FindAllStringSubmatch(text, -1) {
		for _, pair := range label.FindAllStringSubmatch(found[2], -1) {
			named = append(named, pair[1])
		}
	}
	text = selector.ReplaceAllString(text, "$1")
	labels := map[string]bool{"instance": true, "job": true, "le": true}
	metrics := 0
	for _, name := range word.FindAllString(text, -1) {
		if slices.Contains(known, name) {
			continue
		}
		metrics++
		if name == "up" || slices.Contains(withTLS, name) {
			continue
		}
		family := page[name]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			base, cut := strings.CutSuffix(name, suffix)
			if cut && page[base].GetType() == dto.MetricType_HISTOGRAM {
				family = page[base]
			}
		}
		if family == nil {
			t.Errorf("%s: there is no metric %s", e.where, name)
			continue
		}
		if name == family.GetName() && family.GetType() == dto.MetricType_HISTOGRAM {
			t.Errorf("%s: %s is a histogram: name its buckets, sum or count", e.where, name)
		}
		for _, pair := range family.Metric[0].Label {
			labels[pair.GetName()] = true
		}
	}
	if metrics == 0 {
		t.Errorf("%s: no metric in %s", e.where, e.text)
	}
	for _, name := range named {
		if !labels[name] {
			t.Errorf("%s: no metric of it has the label %s: %s", e.where, name, e.text)
		}
	}
}

// The dashboard and the alert rules name metrics and labels that exist.
func TestDashboardsAndAlerts(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("they are not etcd's")
	}
	cluster := harness.StartCluster(t, harness.Cairn, 3, nil)
	client := cluster.Client(0)
	use(t, client)
	alarms := pb.NewMaintenanceClient(client.ActiveConnection())
	request := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 1, Alarm: pb.AlarmType_NOSPACE}
	if _, err := alarms.Alarm(harness.Context(t), request); err != nil {
		t.Fatal(err)
	}
	page := families(t, cluster.Members[0])
	expressions := append(alerts(t), panels(t)...)
	if len(expressions) < 40 {
		t.Errorf("only %d expressions were found", len(expressions))
	}
	for _, expression := range expressions {
		expression.check(t, page)
	}
}
