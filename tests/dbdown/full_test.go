//go:build linux && root

package dbdown

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/pgserver"
	"github.com/millbridge/millbridge/internal/testkit/smalldisk"
	"github.com/millbridge/millbridge/schema"
)

// The outbox is on a disk of its own, which is full: publishing fails, and nothing else.
func TestPostgres_tablespace_is_full(t *testing.T) {
	dir := smalldisk.Mount(t, 32)
	space := filepath.Join(dir, "space")
	s := server(t, pgserver.Options{})
	if err := errors.Join(os.Mkdir(space, 0o700), s.Own(space)); err != nil {
		t.Fatal(err)
	}
	direct := pool(t, s.URL(), nil)
	for _, statement := range []string{`CREATE TABLESPACE small LOCATION '` + space + `'`, `ALTER TABLE millbridge.outbox SET TABLESPACE small`} {
		if _, err := direct.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	w := onPostgres(t, pool(t, s.URL(), nil), direct)
	stop := w.produce(2, 20*time.Millisecond)
	var back []time.Duration
	for range times(3, 10) {
		pause(time.Second)
		free := smalldisk.FillUp(t, dir)
		fillDisk(w)
		free()
		back = append(back, w.recovers(time.Minute))
	}
	stop()
	w.well(3 * time.Minute)
	w.settled(3 * time.Minute)
	took(t, "tablespace full", back)
	direct.Close()
	if err := s.Shutdown(); err != nil { // it has files on the disk
		t.Error(err)
	}
}

// The whole server is on a full disk, log and all, which makes it give up; it is started again when there is room.
func TestPostgres_disk_is_full(t *testing.T) {
	dir := smalldisk.Mount(t, 300)
	s := server(t, pgserver.Options{Parent: dir, Settings: "max_wal_size = 64MB\nmin_wal_size = 32MB"})
	w := onPostgres(t, pool(t, s.URL(), nil), pool(t, s.URL(), nil))
	stop := w.produce(2, 20*time.Millisecond)
	var back []time.Duration
	for range times(3, 10) {
		pause(time.Second)
		free := smalldisk.FillUp(t, dir)
		testkit.Eventually(t, time.Minute, func() error {
			err := w.publish(t.Context(), schema.NewEvent("happened", make([]byte, 500_000)))
			if err == nil {
				return errors.New("there is still room")
			}
			if !errors.Is(err, schema.ErrUnavailable) || schema.KindOf(err) != schema.Temporary {
				t.Errorf("without room: %v", err)
			}
			return nil
		})
		w.says(3*time.Minute, "health", "the d") // atabase cannot be reached, or: isk of the database is full
		pause(2 * time.Second)
		free()
		testkit.Eventually(t, time.Minute, func() error { return answers(t, s) })
		back = append(back, w.recovers(time.Minute))
	}
	stop()
	w.well(3 * time.Minute)
	w.settled(3 * time.Minute)
	took(t, "disk full", back)
}

// answers starts a server that has given up.
func answers(t *testing.T, s *pgserver.Server) error {
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		return errors.Join(err, s.Restart())
	}
	return conn.Close(t.Context())
}

func TestSQLite_disk_is_full(t *testing.T) {
	dir := smalldisk.Mount(t, 16)
	s := openShop(t, filepath.Join(dir, "shop.db"), 10*time.Second, nil)
	w := onSQLite(t, s, testkit.NATS(t).Conn(t), realTime)
	stop := w.produce(2, 20*time.Millisecond)
	var back []time.Duration
	for range times(3, 10) {
		pause(time.Second)
		free := smalldisk.FillUp(t, dir)
		fillDisk(w)
		w.says(3*time.Minute, "health", "the disk of the database is full")
		pause(time.Second)
		free()
		back = append(back, w.recovers(time.Minute))
	}
	stop()
	w.well(3 * time.Minute)
	w.settled(3 * time.Minute)
	took(t, "disk full", back)
	s.close()
}

// fillDisk publishes large events until the database has no room, which must be said by its name and worth another try.
func fillDisk(w *world) {
	w.t.Helper()
	payload := []byte(strings.Repeat("x", 100_000))
	testkit.Eventually(w.t, time.Minute, func() error {
		err := w.publish(w.t.Context(), schema.NewEvent("happened", payload))
		if err == nil {
			return errors.New("there is still room")
		}
		if !errors.Is(err, schema.ErrNoSpace) || schema.KindOf(err) != schema.Temporary {
			return fmt.Errorf("without room: %w", err)
		}
		return nil
	})
}
