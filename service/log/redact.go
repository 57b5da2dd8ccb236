// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Mask stands for what is hidden.
const Mask = "****"

// minSecret is the length in bytes below which a registered secret is not searched for in texts: it would hide half
// of every line.
const minSecret = 4

// Redactor hides secrets in texts. It may be used by many goroutines.
type Redactor struct {
	replacer atomic.Pointer[strings.Replacer]
	patterns []*regexp.Regexp

	mu      sync.Mutex // guards secrets
	secrets map[string]bool
}

// NewRedactor returns a redactor that knows no secrets yet, only the patterns of texts with secrets: URLs with a
// password, "password=…", "\"secret\": \"…\"", "X-Auth-Token: …" and "Authorization: …".
func NewRedactor() *Redactor {
	const word = `(?:password|passwd|secret|token|api_?key)`
	return &Redactor{secrets: map[string]bool{}, patterns: []*regexp.Regexp{
		regexp.MustCompile(`(://[^/\s:@]*:)[^/\s@]+(@)`),
		regexp.MustCompile(`(?i)(\bauthorization["'\]]*\s*[:=]\s*["'\[]*(?:(?:bearer|basic)\s+)?)[^\s"',\]]+()`),
		regexp.MustCompile(`(?i)(\bx-[a-z-]*token["'\]]*\s*[:=]\s*["'\[]*)[^\s"',\]]+()`),
		regexp.MustCompile(`(?i)(` + word + `\\?"\s*:\s*\\?")[^"\\]+(\\?")`),
		regexp.MustCompile(`(?i)(` + word + `=["']?)[^\s"'&,;]+()`),
	}}
}

// Add registers secrets: from now on they are hidden wherever they stand in a text, also quoted, URL-escaped or in
// base64. Shorter ones than four bytes are not searched for.
func (r *Redactor) Add(secrets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, secret := range secrets {
		if len(secret) < minSecret {
			continue
		}
		quoted := strconv.Quote(secret)
		escaped, _ := json.Marshal(secret) //nolint:errchkjson // a string always marshals
		for _, form := range []string{
			secret, quoted[1 : len(quoted)-1], string(escaped[1 : len(escaped)-1]), url.QueryEscape(secret),
			url.PathEscape(secret),
			base64.StdEncoding.EncodeToString([]byte(secret)),
		} {
			r.secrets[form] = true
		}
	}
	forms := make([]string, 0, len(r.secrets))
	for form := range r.secrets {
		forms = append(forms, form)
	}
	// Of two that begin alike the longer one must be tried first, or its end would show.
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(forms))
	for _, form := range forms {
		pairs = append(pairs, form, Mask)
	}
	r.replacer.Store(strings.NewReplacer(pairs...))
}

// Text returns the text with everything hidden that is a known secret or matches a pattern of one.
func (r *Redactor) Text(text string) string {
	if replacer := r.replacer.Load(); replacer != nil {
		text = replacer.Replace(text)
	}
	if strings.ContainsAny(text, ":=") {
		for _, pattern := range r.patterns {
			text = pattern.ReplaceAllString(text, "${1}"+Mask+"${2}")
		}
	}
	return text
}

// SecretName says whether a value of this name is a secret: the name's last word is password, token, secret or the
// like, as in X-Auth-Token or application_credential_secret, but not token_file.
func SecretName(name string) bool {
	name = strings.TrimSuffix(strings.Map(func(c rune) rune {
		switch {
		case c >= 'A' && c <= 'Z':
			return c + 'a' - 'A'
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			return c
		}
		return -1
	}, name), "s")
	for _, ending := range []string{
		"password", "passwd", "passphrase", "secret", "token", "authorization", "apikey", "privatekey", "credential",
	} {
		if strings.HasSuffix(name, ending) {
			return true
		}
	}
	return name == "pas" || name == "auth" // "pass" without its last s
}

// Handler returns a handler that hides secrets in what it passes on to next.
func (r *Redactor) Handler(next slog.Handler) slog.Handler {
	return &redacting{redactor: r, next: next}
}

type redacting struct {
	redactor *Redactor
	next     slog.Handler
	secret   bool // inside a group that is named like a secret
}

func (h *redacting) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *redacting) WithGroup(name string) slog.Handler {
	return &redacting{h.redactor, h.next.WithGroup(name), h.secret || SecretName(name)}
}

func (h *redacting) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.redactor.attr(a, h.secret)
	}
	return &redacting{h.redactor, h.next.WithAttrs(clean), h.secret}
}

func (h *redacting) Handle(ctx context.Context, record slog.Record) error {
	clean := slog.NewRecord(record.Time, record.Level, h.redactor.Text(record.Message), record.PC)
	record.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.redactor.attr(a, h.secret))
		return true
	})
	return h.next.Handle(ctx, clean)
}

func (r *Redactor) attr(a slog.Attr, secret bool) slog.Attr {
	secret = secret || SecretName(a.Key)
	value := a.Value.Resolve()
	switch value.Kind() {
	case slog.KindGroup:
		members := make([]slog.Attr, len(value.Group()))
		for i, member := range value.Group() {
			members[i] = r.attr(member, secret)
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(members...)}
	case slog.KindBool, slog.KindDuration, slog.KindTime:
		return slog.Attr{Key: a.Key, Value: value}
	case slog.KindString, slog.KindInt64, slog.KindUint64, slog.KindFloat64, slog.KindAny, slog.KindLogValuer:
	}
	if value.Kind() == slog.KindAny && value.Any() == nil {
		return slog.Attr{Key: a.Key, Value: value}
	}
	switch {
	case secret && value.String() != "":
		return slog.String(a.Key, Mask)
	case value.Kind() == slog.KindString:
		return slog.String(a.Key, r.Text(value.String()))
	case value.Kind() == slog.KindAny:
		return slog.Attr{Key: a.Key, Value: r.anyValue(value.Any())}
	}
	return slog.Attr{Key: a.Key, Value: value}
}

// anyValue redacts a value of any type. What has words for itself is taken at them; a map, slice or struct is walked
// through as JSON, so that members named like secrets are found; the rest is printed.
func (r *Redactor) anyValue(v any) slog.Value {
	var text string
	err := guard(func() { // a nil pointer with a method on values panics
		switch v := v.(type) {
		case error:
			text = v.Error()
		case fmt.Stringer:
			text = v.String()
		case []byte:
			text = string(v)
		}
	})
	if err != nil {
		return slog.StringValue(fmt.Sprintf("%T(%v)", v, err))
	}
	if text != "" {
		return slog.StringValue(r.Text(text))
	}
	switch reflect.Indirect(reflect.ValueOf(v)).Kind() { //nolint:exhaustive // the others are plain
	case reflect.Map, reflect.Slice, reflect.Array, reflect.Struct:
		raw, err := json.Marshal(v)
		if err != nil {
			break
		}
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		var document any
		if decoder.Decode(&document) == nil {
			return slog.AnyValue(r.document(document, false))
		}
	}
	return slog.StringValue(r.Text(fmt.Sprintf("%+v", v)))
}

func guard(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	f()
	return nil
}

func (r *Redactor) document(v any, secret bool) any {
	switch v := v.(type) {
	case map[string]any:
		clean := make(map[string]any, len(v))
		for key, member := range v {
			clean[r.Text(key)] = r.document(member, secret || SecretName(key))
		}
		return clean
	case []any:
		for i := range v {
			v[i] = r.document(v[i], secret)
		}
		return v
	case string:
		if secret && v != "" {
			return Mask
		}
		return r.Text(v)
	case json.Number:
		if secret {
			return Mask
		}
	}
	return v
}
