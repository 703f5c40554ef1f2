//go:build unix

package netproxy

import (
	"errors"
	"fmt"
	"syscall"
)

// reserve binds a socket to a free loopback port and leaves it at that: the kernel refuses connections, gives the port to
// nobody who asks for a free one, and lets us listen on it whenever we like.
func reserve() (addr string, fd int, err error) {
	syscall.ForkLock.RLock()
	fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return "", 0, err
	}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return "", 0, errors.Join(err, syscall.Close(fd))
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", 0, errors.Join(err, syscall.Close(fd))
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return "", 0, errors.Join(err, syscall.Close(fd))
	}
	bound, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		return "", 0, errors.Join(fmt.Errorf("bound to %T", name), syscall.Close(fd))
	}
	return fmt.Sprintf("127.0.0.1:%d", bound.Port), fd, nil
}

func release(fd int) { _ = syscall.Close(fd) }
