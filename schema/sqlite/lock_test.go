package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// childFile makes this test binary a process that works on the SQLite file it names; childWork says what it does.
const (
	childFile = "MILLBRIDGE_TEST_SQLITE_FILE"
	childWork = "MILLBRIDGE_TEST_SQLITE_WORK"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(childFile); file != "" {
		if err := child(context.Background(), file, os.Getenv(childWork)); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func child(ctx context.Context, file, work string) error {
	write, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer write.Close()
	s := sqlite.New(write, write, sqlite.Options{})
	defer s.Close()
	if work == "migrate" {
		_, _, err := s.MigrateUp(ctx)
		return err
	}
	_, ok, err := s.Acquire(ctx, jobsShard, "child", time.Minute)
	if err != nil || !ok {
		return fmt.Errorf("acquire: %v, %w", ok, err)
	}
	fmt.Println("acquired")
	bufio.NewScanner(os.Stdin).Scan() // until it is killed
	return nil
}

func childProcess(t *testing.T, file, work string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childFile+"="+file, childWork+"="+work)
	return cmd
}

func TestOneForwarderPerFile(t *testing.T) {
	t.Parallel()
	acquire := func(t *testing.T, s *sqlite.Store, token string) bool {
		t.Helper()
		_, ok, err := s.Acquire(t.Context(), jobsShard, token, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	second := func(t *testing.T, file string) *sqlite.Store {
		t.Helper()
		write, read := testkit.OpenSQLite(t, file)
		s := sqlite.New(write, read, sqlite.Options{})
		t.Cleanup(s.Close)
		return s
	}

	t.Run("until all its owners are released", func(t *testing.T) {
		t.Parallel()
		a, file := newFile(t)
		b := second(t, file)
		if !acquire(t, a, "a1") || !acquire(t, a, "a2") { // the second takes the shard over
			t.Fatal("not acquired")
		}
		if _, ok, err := a.Acquire(t.Context(), schema.ShardRef{Stream: schema.Events, Generation: 1}, "a3", time.Minute); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if acquire(t, b, "b") {
			t.Fatal("two stores forward one file")
		}
		if known, err := b.KnownOwner(t.Context(), jobsShard, "b"); known || err != nil {
			t.Errorf("an owner that was refused is known: %v, %v", known, err)
		}
		for _, token := range []string{"a1", "a3", "a2"} {
			if acquire(t, b, "b") {
				t.Fatalf("two stores forward one file before %s is released", token)
			}
			if err := a.Release(t.Context(), token); err != nil {
				t.Fatal(err)
			}
		}
		if !acquire(t, b, "b") {
			t.Fatal("not acquired after the release")
		}
		// Whoever was pushed out notices before it writes.
		_, err := a.Remove(t.Context(), schema.RemoveParams{ShardRef: jobsShard, Owner: "a2", Batch: 1})
		if !errors.Is(err, schema.ErrLeaseLost) {
			t.Errorf("removal by a former owner: %v", err)
		}
		if held, err := a.Renew(t.Context(), []string{"a2", "b"}, time.Minute); err != nil || len(held) != 1 || held[0] != "b" {
			t.Errorf("held %v, %v", held, err)
		}
		b.Close()
		if !acquire(t, a, "a4") {
			t.Error("not acquired after the other has closed")
		}
	})

	t.Run("until its process is killed", func(t *testing.T) {
		t.Parallel()
		s, file := newFile(t)
		cmd := childProcess(t, file, "forward")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer stdin.Close()
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if lines := bufio.NewScanner(out); !lines.Scan() || lines.Text() != "acquired" {
			t.Fatalf("the other process says %q", lines.Text())
		}
		if acquire(t, s, "me") {
			t.Fatal("two processes forward one file")
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() //nolint:errcheck // it was killed
		if !acquire(t, s, "me") {
			t.Fatal("not acquired after the other process was killed")
		}
	})
}

func TestMigrateInManyProcesses(t *testing.T) {
	t.Parallel()
	write, read := testkit.SQLite(t)
	s := sqlite.New(write, read, sqlite.Options{})
	var file string
	if err := read.QueryRowContext(t.Context(), "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&file); err != nil {
		t.Fatal(err)
	}
	const processes = 8
	failed := make(chan error, processes)
	for range processes {
		cmd := childProcess(t, file, "migrate")
		go func() {
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			failed <- err
		}()
	}
	for range processes {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	var rows int
	if err := read.QueryRowContext(t.Context(), "SELECT count(*) FROM millbridge_migrations").Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d versions recorded, %v", rows, err)
	}
}

// Shards of one store that are acquired at the same time do not take each other for another store.
func TestAcquire_shards_at_the_same_time(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, sqlite.Options{})
	refs := []schema.ShardRef{jobsShard, {Stream: schema.Events, Generation: 1}}
	for round := range 200 {
		acquired := make(chan error, len(refs))
		for _, ref := range refs {
			go func() {
				_, ok, err := s.Acquire(t.Context(), ref, string(ref.Stream), time.Minute)
				if err == nil && !ok {
					err = fmt.Errorf("%s is taken for another's", ref.Stream)
				}
				acquired <- err
			}()
		}
		for range refs {
			if err := <-acquired; err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		for _, ref := range refs {
			if err := s.Release(t.Context(), string(ref.Stream)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
