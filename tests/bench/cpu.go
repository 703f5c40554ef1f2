package main

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// processorTime is what each of the processes has used, in seconds. Where there is no /proc only the client's is known.
type processorTime struct {
	Client     float64 `json:"client"`
	PostgreSQL float64 `json:"postgresql"`
	NATS       float64 `json:"nats"`
}

func (p processorTime) total() float64 { return p.Client + p.PostgreSQL + p.NATS }

// ticks is how many times a second the kernel counts processor time in /proc.
const ticks = 100

type stat struct {
	parent      int
	own, waited float64 // seconds: of itself, and of children that have ended
}

func readStat(pid int) (stat, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, false
	}
	// The name, in parentheses, may contain anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 15 {
		return stat{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return stat{}, false
	}
	sum := func(i int) float64 { return (number(fields[i]) + number(fields[i+1])) / ticks }
	return stat{parent: parent, own: sum(11), waited: sum(13)}, true
}

func number(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0
	}
	return v
}

// own is the processor time of this process.
func own() float64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	seconds := func(t syscall.Timeval) float64 { return time.Duration(t.Nano()).Seconds() }
	return seconds(usage.Utime) + seconds(usage.Stime)
}

// peakMemory is the most memory that this process has ever used, in bytes; 0 where it is not known.
func peakMemory() int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	line, _, _ := strings.Cut(rest, "kB")
	return int64(number(strings.TrimSpace(line))) << 10
}

func (st *stage) used() processorTime {
	s := st.servers
	p := processorTime{Client: own(), NATS: st.nats.used()}
	if st, ok := readStat(s.postmaster); ok {
		p.PostgreSQL = st.own + st.waited
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return p
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if st, ok := readStat(pid); ok && st.parent == s.postmaster && s.postmaster != 0 {
				p.PostgreSQL += st.own
			}
		}
	}
	return p
}

// machineBusy is the processor time that the whole machine has used.
func machineBusy() float64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 {
		return 0
	}
	busy := 0.0
	for _, i := range []int{1, 2, 3, 6, 7} { // user, nice, system, irq, softirq
		busy += number(fields[i])
	}
	return busy / ticks
}

// written is how many bytes PostgreSQL has ever put into its log; 0 if it does not say.
func (s *servers) written() int64 {
	var n int64
	if s.watch.QueryRow(context.Background(), "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&n) != nil {
		return 0
	}
	return n
}

// A meter measures from its making on.
type meter struct {
	st      *stage
	start   time.Time
	used    processorTime
	busy    float64
	written int64
	profile *os.File
}

func (st *stage) meter() *meter {
	m := st.meterOther()
	m.profile = startProfile(st.profile)
	return m
}

// meterOther is a meter that leaves the profile to the process that does the work.
func (st *stage) meterOther() *meter {
	m := &meter{st: st, written: st.written(), used: st.used(), busy: machineBusy()}
	m.start = time.Now()
	return m
}

// stop is the result for n messages.
func (m *meter) stop(n int) result { return m.stopOther(n, -1) }

// stopOther is the result for n messages if another process was the client, and has used so much processor time.
func (m *meter) stopOther(n int, client float64) result {
	took := time.Since(m.start).Seconds()
	used, busy := m.st.used(), machineBusy()
	stopProfile(m.profile)
	cpu := processorTime{ // a process that has just ended is missed for a moment
		max(0, used.Client-m.used.Client), max(0, used.PostgreSQL-m.used.PostgreSQL), max(0, used.NATS-m.used.NATS),
	}
	if client >= 0 {
		cpu.Client = client
	}
	r := result{Messages: n, Seconds: took, Rate: float64(n) / took, CPU: cpu, WAL: max(0, m.st.written()-m.written)}
	r.OtherCores = max(0, busy-m.busy-cpu.total()) / took
	return r
}

// startProfile writes to a file where this process's processor time goes from now on. Without a profile there is still
// a measurement.
func startProfile(name string) *os.File {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err == nil {
		err = pprof.StartCPUProfile(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "  no profile:", err)
	}
	return f
}

func stopProfile(f *os.File) {
	if f == nil {
		return
	}
	pprof.StopCPUProfile()
	if err := f.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "  no profile:", err)
	}
}
