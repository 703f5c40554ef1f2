//go:build unix

package pgserver

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	_ "embed"
)

// PoolerVar names the environment variable with the URL of a PgBouncer in front of the server that [URLVar] names. With
// it, tests reach their databases through the pooler.
const PoolerVar = "MILLBRIDGE_TEST_POOLER_URL"

// ErrNoPooler says that this machine has no PgBouncer.
var ErrNoPooler = errors.New("no pgbouncer in PATH or /usr/sbin")

//go:embed pooler.sh
var poolerKeeper string

// PoolerConfig is what differs between poolers.
type PoolerConfig struct {
	Mode  string // pool_mode: session, transaction or statement
	Conns int    // connections to the server, for each database and user
}

// poolerSettings find every database of the server, and users by asking it. Connections are taken in turn, so that a
// client meets another one each time.
const poolerSettings = `[databases]
* = host=%[1]s port=%[2]s auth_user=%[3]s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %[4]d
unix_socket_dir =
auth_type = scram-sha-256
auth_file = %[5]s
auth_query = SELECT usename, passwd FROM pg_catalog.pg_shadow WHERE usename = $1
admin_users = %[3]s
pool_mode = %[6]s
default_pool_size = %[7]d
server_round_robin = 1
server_idle_timeout = 3
server_check_delay = 0
max_client_conn = 2000
logfile = %[8]s
log_connections = 0
log_disconnections = 0
log_stats = 0
`

// Pooler is a running PgBouncer.
type Pooler struct {
	url    string
	leash  *os.File
	keeper *exec.Cmd
}

// URL is that of the server, but through the pooler.
func (p *Pooler) URL() string { return p.url }

// Stop ends it and removes its directory.
func (p *Pooler) Stop() error {
	if err := p.leash.Close(); err != nil {
		return fmt.Errorf("let the pooler's keeper go: %w", err)
	}
	if err := p.keeper.Wait(); err != nil {
		return fmt.Errorf("wait for the pooler's keeper: %w", err)
	}
	return nil
}

// StartPooler runs PgBouncer in front of the server with this URL, as a user who may read password hashes. It ends with
// the process that started it, as the servers do.
func StartPooler(server string, cfg PoolerConfig) (*Pooler, error) {
	bin, err := findPooler()
	if err != nil {
		return nil, err
	}
	as, err := identity()
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil, errors.New("start PgBouncer: the server's URL cannot be read")
	}
	var faults error
	for range 3 { // a port that was free a moment ago can be taken
		p, err := startPooler(bin, as, u, cfg)
		if err == nil {
			return p, nil
		}
		faults = errors.Join(faults, err)
	}
	return nil, fmt.Errorf("start PgBouncer from %s: %w", bin, faults)
}

// FindPooler returns ErrNoPooler if StartPooler would.
func FindPooler() error {
	_, err := findPooler()
	return err
}

func findPooler() (string, error) {
	if bin, err := exec.LookPath("pgbouncer"); err == nil {
		return bin, nil
	}
	if bin, err := exec.LookPath("/usr/sbin/pgbouncer"); err == nil {
		return bin, nil
	}
	return "", ErrNoPooler
}

func startPooler(bin string, as *syscall.Credential, server *url.URL, cfg PoolerConfig) (p *Pooler, err error) {
	dir, err := newDir(as)
	if err != nil {
		return nil, err
	}
	defer func() {
		if p == nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	user := server.User.Username()
	password, _ := server.User.Password()
	users, log := filepath.Join(dir, "users"), filepath.Join(dir, "server.log")
	if err := writeFile(users, fmt.Sprintf("%q %q\n", user, password), as); err != nil {
		return nil, err
	}
	settings := fmt.Sprintf(poolerSettings, server.Hostname(), server.Port(), user, port, users, cfg.Mode, cfg.Conns, log)
	if err := writeFile(filepath.Join(dir, "pgbouncer.ini"), settings, as); err != nil {
		return nil, err
	}
	stdin, leash, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make the pooler's pipe: %w", err)
	}
	defer stdin.Close()
	cmd := command(dir, as, "sh", "-c", poolerKeeper, "keeper", dir, bin)
	cmd.Stdin = stdin
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the pooler's keeper: %w", err), leash.Close())
	}
	through := *server
	through.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	started := &Pooler{url: through.String(), leash: leash, keeper: cmd}
	if err := awaitPort(through.Host); err != nil {
		err = fmt.Errorf("%w\n%s%s", err, tail(filepath.Join(dir, "setup.log")), tail(log))
		return nil, errors.Join(err, started.Stop())
	}
	return started, nil
}

// awaitPort waits until somebody listens.
func awaitPort(addr string) error {
	const limit = 20 * time.Second
	for deadline := time.Now().Add(limit); ; {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("it does not listen: %s", strings.TrimSpace(err.Error()))
		}
		<-time.After(10 * time.Millisecond)
	}
}
