// SPDX-License-Identifier: Apache-2.0

package nbdb_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/kuryr/raven/service/ovn/nbdb"
	"github.com/kuryr/raven/test/sim/northbound"
)

// TestSchemaIsOVNs: what the models were made from is word for word what the installed OVN has.
func TestSchemaIsOVNs(t *testing.T) {
	if err := northbound.Available(); err != nil {
		t.Skip(err)
	}
	text, err := os.ReadFile(northbound.Schema())
	if err != nil {
		t.Fatal(err)
	}
	var whole ovsdb.DatabaseSchema
	if err := json.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	ours := nbdb.Schema()
	if ours.Name != whole.Name {
		t.Errorf("database %s, want %s", ours.Name, whole.Name)
	}
	for name, table := range ours.Tables {
		for column, schema := range table.Columns {
			got, err := json.Marshal(schema)
			if err != nil {
				t.Fatal(err)
			}
			want, err := json.Marshal(whole.Tables[name].Columns[column])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s.%s is not as OVN %s has it: %s", name, column, whole.Version, diff)
			}
		}
	}
}
