package takeover

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// The variables that make this test's program a command of the tool.
const (
	hookVariable = "TAKEOVER_TEST_HOOK"
	urlVariable  = "TAKEOVER_TEST_URL"
)

// hook tells the test what the tool wants, and waits until it is done.
func hook(what string) int {
	values := url.Values{}
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "CAIRN_") {
			values.Set(name, value)
		}
	}
	response, err := http.PostForm(os.Getenv(urlVariable)+"/"+what, values)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hook:", err)
		return 1
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		fmt.Fprintf(os.Stderr, "hook: %s\n", text)
		return 1
	}
	return 0
}
