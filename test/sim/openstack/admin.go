// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// serveAdmin serves what is not OpenStack's: /sim/faults, /sim/log, /sim/stats, /sim/dump, /sim/clouds.yaml,
// /sim/expire-tokens.
func (c *Cloud) serveAdmin(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/sim/")
	switch {
	case path == "faults" || strings.HasPrefix(path, "faults/"):
		c.serveFaults(w, r, strings.Trim(strings.TrimPrefix(path, "faults"), "/"))
	case path == "log" && r.Method == http.MethodGet:
		after, err := strconv.Atoi(r.URL.Query().Get("after"))
		if err != nil {
			after = 0
		}
		writeJSON(w, map[string]any{"requests": c.Log(after)})
	case path == "log" && r.Method == http.MethodDelete:
		c.ResetLog()
		w.WriteHeader(http.StatusNoContent)
	case path == "stats" && r.Method == http.MethodGet:
		writeJSON(w, c.Stats())
	case path == "dump" && r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, c.Dump(dumpOptions(r)))
	case path == "clouds.yaml" && r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "application/yaml")
		fmt.Fprintf(w, "%s", c.CloudsYAML())
	case path == "expire-tokens" && r.Method == http.MethodPost:
		c.ExpireTokens()
		w.WriteHeader(http.StatusNoContent)
	default:
		http.NotFound(w, r)
	}
}

func dumpOptions(r *http.Request) DumpOptions {
	q := r.URL.Query()
	return DumpOptions{
		IDs: q.Has("ids"), Tags: q.Has("tags"), Identity: q.Has("identity"), Addresses: q.Has("addresses"),
		MACs:       q.Has("macs"),
		Everything: q.Has("all"), Project: q.Get("project"), Hide: q["hide"],
	}
}

func (c *Cloud) serveFaults(w http.ResponseWriter, r *http.Request, id string) {
	switch r.Method {
	case http.MethodGet:
		writeJSON(w, map[string]any{"faults": c.Faults()})
	case http.MethodPost:
		var rule Rule
		dec := json.NewDecoder(r.Body)
		dec.DisallowUnknownFields()
		err := dec.Decode(&rule)
		n := 0
		if err == nil {
			n, err = c.AddFault(rule)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		writeJSON(w, map[string]any{"id": n})
	case http.MethodDelete:
		if id == "" {
			c.ClearFaults()
		} else if n, err := strconv.Atoi(id); err == nil {
			c.RemoveFault(n)
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, "GET, POST or DELETE", http.StatusMethodNotAllowed)
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		return // the client has gone
	}
}
