// SPDX-License-Identifier: Apache-2.0

package ovn_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kuryr/raven/service/ovn"
)

// babbler is an OVSDB server that says what it should until it is asked for the rows of the northbound database; then
// it says whatever it was given, and ends the connection.
type babbler struct {
	schema    json.RawMessage
	rows      string // the answer to the question for the rows
	afterward []byte // what follows it
}

// serve serves one connection.
func (b babbler) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	decoder := json.NewDecoder(conn)
	for {
		var request struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if decoder.Decode(&request) != nil {
			return
		}
		result := "[]"
		switch request.Method {
		case "list_dbs":
			result = `["OVN_Northbound"]`
		case "get_schema":
			result = string(b.schema)
		case "monitor_cond":
			result = b.rows
		}
		if _, err := fmt.Fprintf(conn, `{"id":%s,"error":null,"result":%s}`, request.ID, result); err != nil {
			return
		}
		if request.Method == "monitor_cond" {
			_, _ = conn.Write(b.afterward) // where it fails the client has had enough
			return
		}
	}
}

// FuzzOVSDB has any rows and any bytes come from an OVSDB server. Whatever they are, the client ends that connection
// when the server does, and makes another one.
func FuzzOVSDB(f *testing.F) {
	schema, err := os.ReadFile("nbdb/northbound.ovsschema")
	if err != nil {
		f.Fatal(err)
	}
	const (
		uuid     = "5f9f66f5-e836-42cd-b6e8-e07b22d7e990"
		balancer = `{"Load_Balancer":{"` + uuid + `":{"initial":{"name":"shop/web","protocol":"tcp",` +
			`"vips":["map",[["10.96.0.9:80","10.0.0.5:8080"]]],"external_ids":["map",[["raven:cluster","c1"],` +
			`["raven:owner","service-proxy:8f48b953-7af9-4563-864c-6f7fbbb2a897"],["raven:name","lb"],` +
			`["raven:policy","delete"]]]}}}}`
		router = `{"Logical_Router":{"` + uuid + `":{"initial":{"name":"neutron-` + uuid + `",` +
			`"load_balancer_group":["set",[]]}}},"NB_Global":{}}`
		modify = `{"id":null,"method":"update2","params":["OVN_Northbound",{"Load_Balancer":{"` + uuid + `":` +
			`{"modify":{"vips":["map",[["10.96.0.9:80","10.0.0.6:8080"]]]}}}}]}`
		remove = `{"id":null,"method":"update2","params":["OVN_Northbound",{"Load_Balancer":{"` + uuid + `":` +
			`{"delete":null}}}]}`
	)
	f.Add("{}", []byte{})
	f.Add(balancer, []byte(modify+remove))
	f.Add(router, []byte(`{"id":"echo","method":"echo","params":[]}`))
	f.Add(balancer, []byte(`{"id":7,"result":{},"error":{"error":"x","details":"y"}}[]`))
	f.Fuzz(func(t *testing.T, rows string, afterward []byte) {
		dir, err := os.MkdirTemp("", "ovsdb") //nolint:usetesting // a socket's path must be short
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		path := filepath.Join(dir, "s")
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		n, err := ovn.Open(t.Context(), ovn.Config{
			Endpoints: []string{"unix:" + path}, Cluster: "c1", BackoffMin: time.Millisecond, BackoffMax: time.Millisecond,
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		defer n.Close()
		n.Follow(&follower{})
		server := babbler{schema: schema, rows: rows, afterward: afterward}
		for range 2 { // a second connection says that the client is done with the first
			conn, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			server.serve(conn)
			server = babbler{schema: schema, rows: "{}"}
		}
	})
}
