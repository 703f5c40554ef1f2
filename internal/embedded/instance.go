package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/internal/filelock"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// Names inside a data directory.
const (
	lockName     = "lock"
	addressName  = "millbridge.json"
	databaseName = "millbridge.db"
	streamsName  = "nats"
)

// ErrInUse reports a data directory that another process runs.
var ErrInUse = errors.New("the data directory is in use")

// errGone reports that the process that runs a data directory does not answer.
var errGone = errors.New("the process that runs the data directory does not answer")

// Options of [Open] and [Attach]. The zero value works.
type Options struct {
	Logger *slog.Logger // Default: nothing is logged.
	Server ServerOptions
	Store  sqlite.Options
	// Succeed makes an instance that is attached run the directory itself once the process that ran it has ended: for
	// processes that stay. Without it, those that are attached have no server until another process opens the directory.
	Succeed bool
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Server.Logger == nil {
		o.Server.Logger = o.Logger
	}
	if o.Store.Logger == nil {
		o.Store.Logger = o.Logger
	}
	return o
}

// An Instance is a data directory in use: by this process if it came from [Open], by another if from [Attach].
type Instance struct {
	Dir     string
	DB      *DB
	Store   *sqlite.Store // migrated
	NATSURL string        // where clients connect; contains the token

	conn  *nats.Conn
	close func() error

	waiting sync.WaitGroup // to succeed another process
	giveUp  context.CancelFunc

	mu     sync.Mutex
	server *Server // nil when another process runs it
	lock   *filelock.Lock
}

// lockWait is how long Open waits for somebody who is about to stop, or who only looks.
const lockWait = 2 * time.Second

// Open runs the data directory dir in this process, creating and migrating what is not there. The error wraps
// [ErrInUse] and names the process if another one runs it.
func Open(ctx context.Context, dir string, opts Options) (*Instance, error) {
	opts = opts.withDefaults()
	if err := prepare(dir); err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	lock, err := takeLock(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	in := newInstance(dir)
	in.lock = lock
	if err := in.start(ctx, opts); err != nil {
		return nil, fmt.Errorf("open data directory %s: %w", dir, errors.Join(err, in.Close()))
	}
	return in, nil
}

func newInstance(dir string) *Instance {
	in := &Instance{Dir: dir, giveUp: func() {}}
	in.close = sync.OnceValue(in.stop)
	return in
}

func (in *Instance) start(ctx context.Context, opts Options) error {
	if err := in.forgetAddress(); err != nil {
		return err
	}
	if err := in.openStore(ctx, opts); err != nil {
		return err
	}
	if _, _, err := in.Store.MigrateUp(ctx); err != nil {
		return err
	}
	server, a, err := in.serve(ctx, opts)
	if err != nil {
		return err
	}
	in.server, in.NATSURL = server, a.URL
	if in.conn, err = connect(func() (address, error) { return a, nil }, opts.Logger); err != nil {
		return err
	}
	return a.write(in.Dir)
}

// forgetAddress removes what a process that has crashed left behind: it would send clients to a port that may be
// anybody's now.
func (in *Instance) forgetAddress() error {
	err := os.Remove(filepath.Join(in.Dir, addressName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// serve starts the server; nobody knows its address yet.
func (in *Instance) serve(ctx context.Context, opts Options) (*Server, address, error) {
	server, err := StartServer(ctx, filepath.Join(in.Dir, streamsName), rand.Text(), opts.Server)
	if err != nil {
		return nil, address{}, err
	}
	return server, address{Version: addressVersion, PID: os.Getpid(), Address: server.Addr(), Token: server.token, URL: server.URL()}, nil
}

func (in *Instance) openStore(ctx context.Context, opts Options) error {
	var err error
	if in.DB, err = OpenSQLite(ctx, filepath.Join(in.Dir, databaseName)); err != nil {
		return err
	}
	in.Store = sqlite.New(in.DB.Write, in.DB.Read, opts.Store)
	return nil
}

// Attach connects to a data directory that another process runs: to its database file directly, to its server by the
// address file. When that process stops and another one starts, the connection finds the new server by itself.
func Attach(ctx context.Context, dir string, opts Options) (*Instance, error) {
	opts = opts.withDefaults()
	running, ok, err := Find(ctx, dir)
	if err == nil && !ok {
		err = fmt.Errorf("%w: nothing runs there", errGone)
	}
	if err != nil {
		return nil, fmt.Errorf("attach to data directory %s: %w", dir, err)
	}
	in := newInstance(dir)
	in.NATSURL = running.NATSURL
	if err = in.openStore(ctx, opts); err == nil {
		if in.conn, err = connect(func() (address, error) { return readAddress(dir) }, opts.Logger); err != nil {
			err = fmt.Errorf("%w: %w", errGone, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("attach to data directory %s: %w", dir, errors.Join(err, in.Close()))
	}
	if opts.Succeed {
		ctx, in.giveUp = context.WithCancel(context.WithoutCancel(ctx))
		in.waiting.Go(func() { in.succeed(ctx, opts) })
	}
	return in, nil
}

// succeed runs the directory once the process that does has ended, until ctx ends.
func (in *Instance) succeed(ctx context.Context, opts Options) {
	const every = 200 * time.Millisecond
	for pause(ctx, every) {
		lock, err := filelock.Acquire(filepath.Join(in.Dir, lockName))
		if errors.Is(err, filelock.ErrHeld) {
			continue
		}
		if err == nil {
			err = in.inherit(ctx, lock, opts)
		}
		if err == nil {
			opts.Logger.Info("runs the data directory, whose process has ended", "dir", in.Dir)
			return
		}
		if ctx.Err() == nil {
			opts.Logger.Error("the data directory has no server", "dir", in.Dir, "error", err)
			pause(ctx, time.Second)
		}
	}
}

// inherit runs the directory under a lock that was just taken. The connection finds the server by its address file.
func (in *Instance) inherit(ctx context.Context, lock *filelock.Lock, opts Options) error {
	err := in.forgetAddress()
	if err != nil {
		lock.Release()
		return err
	}
	server, a, err := in.serve(ctx, opts)
	if err != nil {
		lock.Release()
		return err
	}
	if err := a.write(in.Dir); err != nil {
		server.Stop()
		lock.Release()
		return err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.server, in.lock = server, lock
	return nil
}

// comeAndGo is how long OpenOrAttach goes on while processes that run the directory come and go.
const comeAndGo = 10 * time.Second

// OpenOrAttach attaches to the data directory if another process runs it, and else runs it. A process that stops just
// then costs another look, not an error.
func OpenOrAttach(ctx context.Context, dir string, opts Options) (*Instance, error) {
	for limit := time.Now().Add(comeAndGo); ; {
		var in *Instance
		_, runs, err := Find(ctx, dir)
		if err == nil && runs {
			in, err = Attach(ctx, dir, opts)
		} else {
			in, err = Open(ctx, dir, opts)
		}
		if !errors.Is(err, errGone) && !errors.Is(err, ErrInUse) || time.Now().After(limit) {
			return in, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Attached reports whether another process runs the directory.
func (in *Instance) Attached() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.lock == nil
}

// Conn is a connection to the server that outlives its restarts and buffers nothing while it is away.
func (in *Instance) Conn() *nats.Conn { return in.conn }

// Close ends what this process holds: the connection, the server if it is this process's, the database, the lock.
// Stop what uses them first. Closing again does nothing.
func (in *Instance) Close() error { return in.close() }

func (in *Instance) stop() error {
	in.giveUp()
	in.waiting.Wait()
	if in.conn != nil {
		in.conn.Close()
	}
	if in.server != nil {
		in.server.Stop()
	}
	var err error
	if in.DB != nil {
		in.Store.Close()
		err = in.DB.Close()
	}
	in.lock.Release()
	return err
}

// prepare makes dir a directory that only its owner can enter.
func prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 == 0 || !modesMatter {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s can be entered by others (mode %04o); use another directory, or close it with: chmod 700 %[1]s", dir, info.Mode().Perm())
	}
	return os.Chmod(dir, 0o700)
}

func takeLock(ctx context.Context, dir string) (*filelock.Lock, error) {
	deadline := time.Now().Add(lockWait)
	for {
		lock, err := filelock.Acquire(filepath.Join(dir, lockName))
		switch {
		case err == nil:
			return lock, nil
		case !errors.Is(err, filelock.ErrHeld):
			return nil, err
		case time.Now().After(deadline):
			pid, _, _ := filelock.Held(filepath.Join(dir, lockName)) // for the message only
			return nil, fmt.Errorf("%w: %s by process %d", ErrInUse, dir, pid)
		}
		if !pause(ctx, 20*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}
