package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// URLVar names the environment variable with the URL of a PostgreSQL server to test on, as a user who may create
// databases.
const URLVar = "MILLBRIDGE_TEST_POSTGRES_URL"

// MinMajor is the oldest PostgreSQL that Millbridge works with.
const MinMajor = 14

// ErrNoBinaries says that this machine has no usable PostgreSQL.
var ErrNoBinaries = errors.New("no PostgreSQL server binaries")

// places are where packages put the server's binaries; most of them are not in PATH.
var places = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/usr/local/pgsql/bin",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
}

// Find returns the directory with the newest server binaries and their major version, or ErrNoBinaries.
func Find() (dir string, major int, err error) {
	for _, d := range candidates() {
		if v := versionOf(d); v > major {
			dir, major = d, v
		}
	}
	if major < MinMajor {
		return "", 0, fmt.Errorf("%w of version %d or newer in PATH or %v", ErrNoBinaries, MinMajor, places[:1])
	}
	return dir, major, nil
}

func candidates() []string {
	var dirs []string
	if p, err := exec.LookPath("postgres"); err == nil {
		// Links to single programs are common; the directory behind the link has all of them.
		if real, err := filepath.EvalSymlinks(p); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
	}
	for _, pattern := range places {
		found, _ := filepath.Glob(pattern) // the only error is a malformed pattern
		dirs = append(dirs, found...)
	}
	return dirs
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// versionOf returns the major version of the server in dir, or 0 if it does not have all that a cluster needs.
func versionOf(dir string) int {
	for _, name := range []string{"initdb", "pg_ctl", "postgres"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return 0
		}
	}
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return 0
	}
	v, _ := strconv.Atoi(string(m[1])) // digits only
	return v
}
