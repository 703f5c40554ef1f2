package sqlite_test

import (
	"strings"
	"testing"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// What is in flight is listed once for a look, not once for each row that it goes past: with thousands in flight that took
// seconds, in which the forwarder of an embedded bridge did nothing.
func TestPeek_lists_what_is_in_flight_once(t *testing.T) {
	t.Parallel()
	_, file := newFile(t)
	_, read := testkit.OpenSQLite(t, file)
	rows, err := read.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+sqlite.SQLPeek, "[]", "[]")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, step)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(plan, "\n")
	if !strings.Contains(all, "LIST SUBQUERY") || strings.Contains(all, "CORRELATED LIST SUBQUERY") {
		t.Errorf("the plan lists what is in flight again and again:\n%s", all)
	}
}
