// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kuryr/raven/service/config"
)

const (
	healthGroup  = "health_server"
	metricsGroup = "prometheus_exporter"

	readTimeout  = 10 * time.Second
	writeTimeout = time.Minute // a status of ten thousand objects over a slow line
	maxHeader    = 64 << 10
)

// Options declares the options of the server.
func Options() []config.Option {
	const declarer = "kuryr.raven"
	return []config.Option{
		{
			Group: healthGroup, Name: "host", Type: config.HostAddress, Default: "127.0.0.1", Declarer: declarer,
			StartOnly: true,
			Help: "The address that /livez, /readyz, /status and /metrics are served on. They need no login: keep it a " +
				"private one.",
		},
		{
			Group: healthGroup, Name: "port", Type: config.Port, Default: "8082", Declarer: declarer, StartOnly: true,
			Help: "Their port; 0 takes any free one.",
		},
		{
			Group: metricsGroup, Name: "host", Type: config.HostAddress, Default: "127.0.0.1", Declarer: declarer,
			StartOnly: true,
			Help:      "The address that /metrics is served on as well.",
		},
		{
			Group: metricsGroup, Name: "port", Type: config.Port, Default: "9654", Declarer: declarer, StartOnly: true,
			Help: "Its port; 0 serves /metrics with the health endpoints only.",
		},
	}
}

// ErrQuery is wrapped by a Status function's error about its query: answered with 400 instead of 500.
var ErrQuery = errors.New("bad query")

// Config says what is served, and where.
type Config struct {
	// Host and Port of the health endpoints; port 0 takes a free one.
	Host string
	Port int
	// MetricsHost and MetricsPort serve /metrics as well; port 0 does not. A negative port takes a free one.
	MetricsHost string
	MetricsPort int
	// Gatherer holds the metrics; nil serves none.
	Gatherer prometheus.Gatherer
	// Stalled names what stands still and never will go on; /livez fails while there is anything. Nil: nothing ever does.
	Stalled func() []string
	// Status makes the document that /status answers with as JSON, for the query of the request; nil serves none.
	Status func(url.Values) (any, error)
	Logger *slog.Logger // nil: slog.Default()
}

// FromConfig reads the options that Options declares.
func FromConfig(v *config.Values) Config {
	return Config{
		Host: v.String(healthGroup, "host"), Port: int(v.Int(healthGroup, "port")),
		MetricsHost: v.String(metricsGroup, "host"), MetricsPort: int(v.Int(metricsGroup, "port")),
	}
}

// Server is a service that serves /livez, /readyz, /status and /metrics.
type Server struct {
	config   Config
	registry *Registry
	servers  []*http.Server
	address  []net.Addr
	serving  sync.WaitGroup

	mu  sync.Mutex // guards err
	err error
}

// New returns a server that does not listen yet.
func New(c Config, registry *Registry) *Server {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Server{config: c, registry: registry}
}

// Start listens and serves. An address that is taken is a *config.Error naming the option.
func (s *Server) Start(ctx context.Context) error {
	listener, err := listen(ctx, healthGroup, s.config.Host, s.config.Port)
	if err != nil {
		return err
	}
	listeners, handlers := []net.Listener{listener}, []http.Handler{s.Handler()}
	if s.config.MetricsPort != 0 && s.config.Gatherer != nil {
		listener, err := listen(ctx, metricsGroup, s.config.MetricsHost, max(s.config.MetricsPort, 0))
		if err != nil {
			_ = listeners[0].Close()
			return err
		}
		mux := http.NewServeMux()
		s.handleMetrics(mux)
		listeners, handlers = append(listeners, listener), append(handlers, mux)
	}
	for i, listener := range listeners {
		s.address = append(s.address, listener.Addr())
		server := &http.Server{
			Handler: handlers[i], ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
			IdleTimeout: writeTimeout, MaxHeaderBytes: maxHeader,
			ErrorLog: slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelWarn),
		}
		s.servers = append(s.servers, server)
	}
	for i, server := range s.servers { // all are known before the first can fail
		s.serving.Go(func() {
			if err := server.Serve(listeners[i]); !errors.Is(err, http.ErrServerClosed) {
				s.fail(fmt.Errorf("serving on %s: %w", listeners[i].Addr(), err))
			}
		})
	}
	s.config.Logger.Info("serving health and status", "address", s.address[0].String())
	return nil
}

// fail keeps the first error and ends the other server with this one.
func (s *Server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	for _, server := range s.servers {
		_ = server.Close()
	}
}

func listen(ctx context.Context, group, host string, port int) (net.Listener, error) {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err == nil {
		return listener, nil
	}
	problem := &config.Error{Group: group, Option: "port", Message: "listening on " + address + ": " + err.Error()}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		problem.Message = address + " is in use by another process, perhaps another Raven with this configuration; " +
			"stop that or set another port"
	case errors.Is(err, syscall.EACCES):
		problem.Message = "not allowed to listen on " + address + "; set a port above 1023"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		problem.Option, problem.Message = "host", host+" is no address of this machine"
	}
	return nil, problem
}

// Address returns where the health endpoints are served, as host:port; valid after Start.
func (s *Server) Address() string { return s.address[0].String() }

// MetricsAddress returns where /metrics is served on its own, or ""; valid after Start.
func (s *Server) MetricsAddress() string {
	if len(s.address) < 2 {
		return ""
	}
	return s.address[1].String()
}

// Stop ends serving; graceful lets requests in flight finish as long as ctx lasts.
func (s *Server) Stop(ctx context.Context, graceful bool) error {
	defer s.serving.Wait()
	var errs []error
	for _, server := range s.servers {
		if !graceful {
			errs = append(errs, server.Close())
			continue
		}
		if err := server.Shutdown(ctx); err != nil {
			errs = append(errs, err, server.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stopping the health server: %w", err)
	}
	return nil
}

// Wait returns when serving has ended: nil after Stop.
func (s *Server) Wait() error {
	s.serving.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Reset does nothing: an address is not changed while running.
func (s *Server) Reset(context.Context) error { return nil }

// Handler returns the endpoints.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, "alive", s.stalled(), func(state State) bool { return state != Failed })
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, "ready", nil, func(state State) bool { return state == Ready || state == Degraded })
	})
	if s.config.Status != nil {
		mux.HandleFunc("GET /status", s.status)
	}
	if s.config.Gatherer != nil {
		s.handleMetrics(mux)
	}
	return mux
}

func (s *Server) handleMetrics(mux *http.ServeMux) {
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.config.Gatherer, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
	}))
}

// stalled is a report of each part that stands still.
func (s *Server) stalled() []Report {
	if s.config.Stalled == nil {
		return nil
	}
	names := s.config.Stalled()
	if len(names) == 0 {
		return nil
	}
	s.config.Logger.Error("loops stand still, so this process does not call itself alive", "loops", names)
	reports := make([]Report, 0, len(names))
	for _, name := range names {
		reports = append(reports, Report{Name: name, State: Failed, Reason: "it stands still"})
	}
	return reports
}

// answer lists every component with its reason, and further ones; the status is 200 if all are good enough, else 503.
// ?format=json answers JSON.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, what string, more []Report, good func(State) bool) {
	reports := append(s.registry.Reports(), more...)
	ok := len(reports) > 0 || what == "alive"
	for _, report := range reports {
		ok = ok && good(report.State)
	}
	code := http.StatusOK
	if !ok {
		code = http.StatusServiceUnavailable
	}
	if r.URL.Query().Get("format") == "json" {
		writeJSON(w, code, map[string]any{what: ok, "components": reports})
		return
	}
	var b strings.Builder
	if ok {
		b.WriteString(what + "\n")
	} else {
		b.WriteString("not " + what + "\n")
	}
	for _, report := range reports {
		fmt.Fprintf(&b, "%-9s %s", report.State, report.Name)
		if report.Reason != "" {
			b.WriteString(": " + strings.ReplaceAll(report.Reason, "\n", " "))
		}
		b.WriteString("\n")
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(b.String())) // a prober that has gone is no error
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	document, err := s.config.Status(query)
	switch {
	case errors.Is(err, ErrQuery):
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
	case err != nil:
		s.config.Logger.Error("status failed", "error", err)
		writeJSON(w, http.StatusInternalServerError, map[string]string{"error": err.Error()})
	default:
		writeJSON(w, http.StatusOK, document)
	}
}

// writeJSON encodes before it answers, so that a document that cannot be encoded is a 500 and not a torn 200.
func writeJSON(w http.ResponseWriter, code int, document any) {
	body, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		http.Error(w, "encoding the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // a client that has gone is no error
}
