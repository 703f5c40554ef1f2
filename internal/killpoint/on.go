//go:build killpoints && unix

package killpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// The variables that arm a place. Its n-th pass, counted over the whole process, kills the process ("name:n"), stops it
// until somebody sends SIGCONT ("name:n"), or makes the goroutine that passes wait ("name:n:duration").
const (
	KillVar  = "MILLBRIDGE_KILL"
	StopVar  = "MILLBRIDGE_STOP"
	PauseVar = "MILLBRIDGE_PAUSE"
)

// Lease and AckWait shorten the leases of shards and handlers, and the time after which the server hands a message out
// again, so that a test need not wait for what a crash has left.
var (
	Lease   = duration("MILLBRIDGE_KILL_LEASE")
	AckWait = duration("MILLBRIDGE_KILL_ACK_WAIT")
)

var armed = arm()

type trap struct {
	name   Name
	pass   int64
	spring func()
	passed atomic.Int64
}

// At marks a place; what has been armed for it happens here.
func At(name Name) {
	for _, t := range armed {
		if t.name == name && t.passed.Add(1) == t.pass {
			t.spring()
		}
	}
}

func arm() (all []*trap) {
	for variable, spring := range map[string]func(time.Duration){
		KillVar:  func(time.Duration) { signal(syscall.SIGKILL) },
		StopVar:  func(time.Duration) { signal(syscall.SIGSTOP) },
		PauseVar: func(d time.Duration) { <-time.After(d) },
	} {
		text := os.Getenv(variable)
		if text == "" {
			continue
		}
		parts := strings.Split(text+":0s", ":")
		pass, err := strconv.ParseInt(parts[1], 10, 64)
		wait, err2 := time.ParseDuration(parts[2])
		if err != nil || err2 != nil {
			panic(fmt.Sprintf("%s=%q: want name:pass, or name:pass:duration", variable, text))
		}
		all = append(all, &trap{name: Name(parts[0]), pass: pass, spring: func() { spring(wait) }})
	}
	return all
}

// signal sends a signal to this process, which does not go on before it has taken effect.
func signal(s syscall.Signal) {
	if err := syscall.Kill(os.Getpid(), s); err != nil {
		panic(err)
	}
	if s == syscall.SIGKILL {
		select {}
	}
}

func duration(variable string) time.Duration {
	text := os.Getenv(variable)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", variable, err))
	}
	return d
}
