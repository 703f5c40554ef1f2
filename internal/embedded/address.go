package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/millbridge/millbridge/internal/filelock"
)

// modesMatter is false where the system has access lists in place of modes.
const modesMatter = runtime.GOOS != "windows"

// addressVersion is the format of the address file.
const addressVersion = 1

// address is what the address file says about the process that runs the directory.
type address struct {
	Version int    `json:"version"`
	PID     int    `json:"pid"`
	Address string `json:"address"` // host:port of the NATS server
	Token   string `json:"token"`
	URL     string `json:"url"` // both in one, as NATS clients take it
}

// write puts the file in place whole, readable by its owner only.
func (a address) write(dir string) error {
	text, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, addressName+".*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, addressName))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func readAddress(dir string) (address, error) {
	text, err := os.ReadFile(filepath.Join(dir, addressName))
	if err != nil {
		return address{}, err
	}
	var a address
	if err := json.Unmarshal(text, &a); err != nil {
		return address{}, fmt.Errorf("read %s: %w", addressName, err)
	}
	if a.Version != addressVersion {
		return address{}, fmt.Errorf("read %s: version %d is not known", addressName, a.Version)
	}
	return a, nil
}

// Running is a process that runs a data directory, and how to connect to it.
type Running struct {
	PID      int
	NATSURL  string // contains the token
	Database string // the SQLite file
}

// startWait is how long Find waits for a process that is starting.
const startWait = 30 * time.Second

// Find reports who runs the data directory dir; ok is false if nobody does, whatever files a crash has left. It waits
// for a process that is just starting.
func Find(ctx context.Context, dir string) (running Running, ok bool, err error) {
	deadline := time.Now().Add(startWait)
	for {
		pid, held, err := filelock.Held(filepath.Join(dir, lockName))
		if err != nil || !held {
			return Running{}, false, err
		}
		a, err := readAddress(dir)
		switch {
		case err == nil && a.PID == pid:
			return Running{PID: pid, NATSURL: a.URL, Database: filepath.Join(dir, databaseName)}, true, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return Running{}, false, err
		case time.Now().After(deadline):
			return Running{}, false, fmt.Errorf("process %d runs %s but has not said how to connect", pid, dir)
		}
		if !pause(ctx, 20*time.Millisecond) {
			return Running{}, false, ctx.Err()
		}
	}
}
