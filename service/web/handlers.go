// SPDX-License-Identifier: Apache-2.0

package web

import (
	"crypto/subtle"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
)

const (
	// mostPages bounds the pages that are kept up to date at once.
	mostPages = 64
	// mostNodes is how many nodes of expanded namespaces an answer has, unless the page asks for fewer.
	mostNodes = 2000
	// mostProblems is how many problems the overview lists.
	mostProblems = 100
	// beat is the time between two signs of life of a page's stream.
	beat = 15 * time.Second
	// patience is how long a page may take to read one event.
	patience = 10 * time.Second
	// policy lets the page run, show and ask only what this server serves.
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// bundle is made by `make web`.
//
//go:embed dist
var bundle embed.FS

// Source is what the page shows.
type Source interface {
	// Overview is the document of /status without its objects.
	Overview() any
	// Describe is the document of /status?describe=true.
	Describe(filter reconcile.Filter) any
	// Objects are what became of the source objects; nil: another process leads.
	Objects() []reconcile.ObjectStatus
	// Counts is how many objects are in each state.
	Counts() map[state.Phase]int
	// Changes is another number whenever something may have changed.
	Changes() uint64
}

// Overview is how Raven stands.
type Overview struct {
	Report any `json:"report"` // see docs/json.md
	// Hour has a sample of each of the last 60 minutes, the earliest first.
	Hour []Sample `json:"hour"`
	// Problems are what needs a look: objects that are not done, and resources in ERROR, the worst first. More counts
	// those that are left out.
	Problems []Node `json:"problems"`
	More     int    `json:"more,omitempty"`
}

// Page is one source object.
type Page struct {
	ID       string `json:"id"`
	Document any    `json:"document"` // see docs/json.md
	// Links are the resources that it has, and the objects and resources that it names or that name it.
	Links []Node `json:"links"`
}

// Handler returns what is served. Only what New was given is shown, and nothing can be changed.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	assets, err := fs.Sub(bundle, "dist")
	if err != nil {
		panic(err) // the name of an embedded folder is valid
	}
	mux.Handle("GET /", http.FileServerFS(assets))
	mux.HandleFunc("GET /api/overview", s.overview)
	mux.HandleFunc("GET /api/topology", s.topology)
	mux.HandleFunc("GET /api/object", s.object)
	mux.HandleFunc("GET /api/search", s.search)
	mux.HandleFunc("GET /api/changes", s.changes)
	return s.guard(mux)
}

// guard sets the headers of every answer, and turns away who has no token. Where none is needed, it turns away names
// that lead to this machine by a trick: a page of another site could read the answers otherwise.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "this page changes nothing: only GET is answered", http.StatusMethodNotAllowed)
		case s.token == "" && !local(r.Host):
			http.Error(w, "ask for this page by a loopback address or by localhost", http.StatusMisdirectedRequest)
		case s.token != "" && !s.admits(r):
			h.Set("WWW-Authenticate", `Basic realm="Raven", charset="UTF-8"`)
			http.Error(w, "the password is the token of [web] token_file", http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return loopback(strings.Trim(host, "[]"))
}

func (s *Server) admits(r *http.Request) bool {
	_, password, basic := r.BasicAuth()
	if !basic {
		password, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	return subtle.ConstantTimeCompare([]byte(password), []byte(s.token)) == 1
}

func (s *Server) overview(w http.ResponseWriter, _ *http.Request) {
	o := Overview{Report: s.config.Source.Overview(), Hour: s.feed.hour()}
	o.Problems, o.More = s.feed.current().Problems(mostProblems)
	s.answer(w, o)
}

func (s *Server) topology(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	sel := Selection{
		Expanded: map[string]bool{}, States: q["state"], Drivers: q["driver"], Kinds: q["kind"], Limit: mostNodes,
	}
	for _, name := range q["namespace"] {
		sel.Expanded[name] = true
	}
	if limit, err := strconv.Atoi(q.Get("limit")); err == nil && limit > 0 {
		sel.Limit = min(limit, mostNodes)
	}
	s.answer(w, s.feed.current().Select(sel))
}

func (s *Server) object(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("kind") == "" || q.Get("name") == "" {
		http.Error(w, "name the object by kind, namespace and name", http.StatusBadRequest)
		return
	}
	filter := reconcile.Filter{Kind: q.Get("kind"), Namespace: q.Get("namespace"), Name: q.Get("name")}
	id := filter.Kind + "/" + filter.Namespace + "/" + filter.Name
	s.answer(w, Page{ID: id, Document: s.config.Source.Describe(filter), Links: s.feed.current().Links(id)})
}

func (s *Server) search(w http.ResponseWriter, r *http.Request) {
	s.answer(w, search(s.config.Source.Objects(), r.URL.Query().Get("q")))
}

// changes tells a page by server-sent events that there is something newer: the page asks for what it shows.
func (s *Server) changes(w http.ResponseWriter, r *http.Request) {
	if !s.feed.join(mostPages) {
		http.Error(w, fmt.Sprintf("%d pages are open already: close one", mostPages), http.StatusServiceUnavailable)
		return
	}
	defer s.feed.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	stream := http.NewResponseController(w)
	say := func(text string) bool {
		_ = stream.SetWriteDeadline(s.config.Clock.Now().Add(patience)) // a recorder in a test has none
		_, err := fmt.Fprint(w, text)
		return err == nil && stream.Flush() == nil
	}
	beats := s.config.Clock.NewTicker(beat)
	defer beats.Stop()
	generation, newer := s.feed.latest()
	for say(fmt.Sprintf("event: change\ndata: {\"generation\":%d}\n\n", generation)) {
		for still := true; still; {
			select {
			case <-r.Context().Done():
				return
			case <-s.stopping:
				return
			case <-beats.C():
				if !say(": alive\n\n") {
					return
				}
			case <-newer:
				still = false
			}
		}
		generation, newer = s.feed.latest()
	}
}

// answer encodes before it answers, so that a document that cannot be encoded is a 500 and not a torn 200.
func (s *Server) answer(w http.ResponseWriter, document any) {
	body, err := json.Marshal(document)
	if err != nil {
		s.config.Logger.Error("encoding an answer failed", "error", err)
		http.Error(w, "encoding the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(body) // a page that has gone is no error
}

// Link is the address of an object's page below an address of the server, such as http://127.0.0.1:8084.
func Link(base, kind, namespace, name string) string {
	parts := []string{kind, namespace, name}
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.TrimSuffix(base, "/") + "/#/object/" + strings.Join(parts, "/")
}
