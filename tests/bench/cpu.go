package main

import (
	"fmt"
	"os"
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

func (s *servers) used() processorTime {
	var usage syscall.Rusage
	var p processorTime
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) == nil {
		seconds := func(t syscall.Timeval) float64 { return time.Duration(t.Nano()).Seconds() }
		p.Client = seconds(usage.Utime) + seconds(usage.Stime)
	}
	if st, ok := readStat(s.nats.cmd.Process.Pid); ok {
		p.NATS = st.own
	}
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

// A meter measures from its making on.
type meter struct {
	st    *stage
	start time.Time
	used  processorTime
	busy  float64
}

func (st *stage) meter() meter {
	return meter{st: st, used: st.used(), busy: machineBusy(), start: time.Now()}
}

// stop is the result for n messages.
func (m meter) stop(n int) result {
	took := time.Since(m.start).Seconds()
	used, busy := m.st.used(), machineBusy()
	cpu := processorTime{used.Client - m.used.Client, used.PostgreSQL - m.used.PostgreSQL, used.NATS - m.used.NATS}
	r := result{Messages: n, Seconds: took, Rate: float64(n) / took, CPU: cpu}
	r.OtherCores = max(0, busy-m.busy-cpu.total()) / took
	return r
}
