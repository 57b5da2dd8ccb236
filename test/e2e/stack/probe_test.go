package stack

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Where a port is another's server's, a server cannot begin, and that one answers.
func TestWhatAnswersForADeadServerIsAnothers(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	s := standing(t, Component{Name: "a", Argv: []string{"sh", "-c", "echo in use; exit 1"}, Ready: Probe{Address: server.Listener.Addr().String()}})
	c, err := s.Component("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.spawn(c); err != nil {
		t.Fatal(err)
	}
	await(t, "it has ended", func() bool { return !s.Running("a") })
	if err := s.awaitReady(t.Context(), c); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("the error is %v, without its log", err)
	}
}
