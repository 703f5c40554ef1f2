//go:build unix

package pgserver

import (
	"bufio"
	"crypto/rand"
	_ "embed"
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
)

// startTimeout is for a slow machine under load; a start takes about two seconds.
const startTimeout = 2 * time.Minute

//go:embed keeper.sh
var keeper string

// settings are small because several servers may run at once. Flushing stays on: when a row counts as durable is part
// of what the tests are about.
const settings = `
listen_addresses = '127.0.0.1'
port = %d
unix_socket_directories = ''
max_connections = 300
max_prepared_transactions = 32
shared_buffers = 32MB
fsync = on
synchronous_commit = on
timezone = 'UTC'
log_timezone = 'UTC'
lc_messages = 'C'
`

// Options are for a server that is not like the others.
type Options struct {
	// Settings are more lines for postgresql.conf.
	Settings string
	// Parent is where the server's directory is made, for example on a small disk. The server's user must be able to make
	// entries in it. Default: the first temporary directory that will do.
	Parent string

	primary string // of a standby
}

// Server is a running throwaway server.
type Server struct {
	url    string
	major  int
	dir    string
	bin    string
	as     *syscall.Credential
	leash  *os.File // the keeper ends when this closes; the kernel closes it when this process dies
	keeper *exec.Cmd
}

// URL is the superuser's connection string, with the password, for the database postgres.
func (s *Server) URL() string { return s.url }

// Major is the server's major version.
func (s *Server) Major() int { return s.major }

// Stop ends the server and removes its directory.
func (s *Server) Stop() error {
	if err := s.leash.Close(); err != nil {
		return fmt.Errorf("let the server's keeper go: %w", err)
	}
	if err := s.keeper.Wait(); err != nil {
		return fmt.Errorf("wait for the server's keeper: %w", err)
	}
	return nil
}

// Start runs a new server from the binaries that Find finds.
func Start() (*Server, error) { return StartWith(Options{}) }

// StartWith is Start with options.
func StartWith(opts Options) (*Server, error) {
	bin, major, err := Find()
	if err != nil {
		return nil, err
	}
	as, err := identity()
	if err != nil {
		return nil, err
	}
	// A port that was free a moment ago can be taken when the server asks for it.
	var faults error
	for range 3 {
		s, err := start(bin, as, opts)
		if err == nil {
			s.major = major
			return s, nil
		}
		faults = errors.Join(faults, err)
	}
	return nil, fmt.Errorf("start PostgreSQL from %s: %w", bin, faults)
}

func start(bin string, as *syscall.Credential, opts Options) (*Server, error) {
	makeDir := newDir
	if opts.Parent != "" {
		makeDir = func(as *syscall.Credential) (string, error) { return newDirIn(as, opts.Parent) }
	}
	dir, err := makeDir(as)
	if err != nil {
		return nil, err
	}
	s, err := startIn(dir, bin, as, opts)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func startIn(dir, bin string, as *syscall.Credential, opts Options) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	password := rand.Text()
	if opts.primary != "" {
		u, err := url.Parse(opts.primary)
		if err != nil {
			return nil, fmt.Errorf("read the primary's URL: %w", err)
		}
		password, _ = u.User.Password()
	}
	secret, err := secretOf(password)
	if err != nil {
		return nil, err
	}
	if err := writeFile(filepath.Join(dir, "password"), secret+"\n", as); err != nil {
		return nil, err
	}
	if err := writeFile(filepath.Join(dir, "settings.conf"), fmt.Sprintf(settings, port)+opts.Settings+"\n", as); err != nil {
		return nil, err
	}
	stdin, leash, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make the keeper's pipe: %w", err)
	}
	defer stdin.Close()
	answer, stdout, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the keeper's pipe: %w", err), leash.Close())
	}
	defer answer.Close()

	cmd := command(dir, as, "sh", "-c", keeper, "keeper", dir, bin, opts.primary)
	cmd.Stdin, cmd.Stdout = stdin, stdout
	err = cmd.Start()
	stdout.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the server's keeper: %w", err), leash.Close())
	}
	s := &Server{url: urlFor(port, password), dir: dir, bin: bin, as: as, leash: leash, keeper: cmd}
	if err := s.awaitReady(answer); err != nil {
		// The logs are read before the keeper removes them.
		err = fmt.Errorf("%w\n%s%s", err, tail(filepath.Join(dir, "setup.log")), tail(filepath.Join(dir, "server.log")))
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// command runs a program as the server's user in its directory.
func command(dir string, as *syscall.Credential, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	// None of the caller's PG* variables, which would change what the tools do.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	// In a session of its own, so that an interrupt from the terminal or to the group leaves the keeper to clean up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: as}
	return cmd
}

func (s *Server) awaitReady(answer *os.File) error {
	if err := answer.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return fmt.Errorf("limit the wait for the server: %w", err)
	}
	line, err := bufio.NewReader(answer).ReadString('\n')
	if err != nil {
		return fmt.Errorf("wait for the server: %w", err)
	}
	if strings.TrimSpace(line) != "ready" {
		return errors.New("the server did not start")
	}
	return nil
}

func urlFor(port int, password string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func writeFile(name, content string, as *syscall.Credential) error {
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(name), err)
	}
	if as == nil {
		return nil
	}
	if err := os.Chown(name, int(as.Uid), int(as.Gid)); err != nil {
		return fmt.Errorf("give %s to the server's user: %w", filepath.Base(name), err)
	}
	return nil
}

// tail is the end of a log file, as much as a person wants to read.
func tail(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return string(b[max(0, len(b)-2000):])
}
