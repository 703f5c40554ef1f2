package schema_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
	"pgregory.net/rapid"
)

func TestUUID_text(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		u := genUUID.Draw(t, "uuid")
		for _, s := range []string{u.String(), strings.ToUpper(u.String())} {
			if got, err := schema.ParseUUID(s); err != nil || got != u {
				t.Fatalf("%q was read as %v, %v", s, got, err)
			}
		}
	})
	for _, s := range []string{
		"", "0", "01234567-89ab-cdef-0123-456789abcde", "01234567-89ab-cdef-0123-456789abcdef0", "0123456789abcdef0123456789abcdef",
		"01234567x89ab-cdef-0123-456789abcdef", "0123456g-89ab-cdef-0123-456789abcdef", "{1234567-89ab-cdef-0123-456789abcde}",
	} {
		if u, err := schema.ParseUUID(s); err == nil {
			t.Errorf("%q was read as %v", s, u)
		}
	}
}

func TestNewUUID_is_of_version_7_and_sorts_by_time(t *testing.T) {
	t.Parallel()
	last := ""
	for ms := range int64(200) {
		u := schema.NewUUID(time.UnixMilli(1_700_000_000_000 + ms))
		s := u.String()
		if s[14] != '7' || !strings.ContainsRune("89ab", rune(s[19])) {
			t.Fatalf("%s is not of version 7 and variant 2", s)
		}
		if s <= last {
			t.Fatalf("%s after %s", s, last)
		}
		last = s
	}
	if got := schema.NewUUID(time.UnixMilli(0x0123456789ab)).String(); !strings.HasPrefix(got, "01234567-89ab-7") {
		t.Errorf("the time is not the first six bytes: %s", got)
	}
	seen := make(map[string]bool)
	for range 10_000 {
		seen[schema.NewID()] = true
	}
	if len(seen) != 10_000 {
		t.Errorf("%d different ids of 10,000", len(seen))
	}
}

func TestRowID(t *testing.T) {
	t.Parallel()
	id := schema.NewID()
	if got := schema.RowID(id).String(); got != id {
		t.Errorf("%s became %s", id, got)
	}
	const upper = "01890A5D-AC96-774B-BCCE-B302099A8057"
	seen := make(map[schema.UUID]string)
	for _, id := range []string{upper, strings.ToLower(upper), "01HZZ9VJ3Q9XN4ZV8A0H7K3Q2M", "a", "A", "", "urn:x", strings.Repeat("x", 64)} {
		u := schema.RowID(id)
		if other, ok := seen[u]; ok {
			t.Errorf("%q and %q have one row id", other, id)
		}
		seen[u] = id
		if s := u.String(); s != id && s[14] != '8' {
			t.Errorf("the row id of %q is not of version 8: %s", id, s)
		}
		if schema.RowID(id) != u {
			t.Errorf("the row id of %q changes", id)
		}
	}
}
