//go:build unix

package netproxy

import (
	"bytes"
	"slices"
)

const longestPattern = 256

// A Trip resets one connection, once, when something passes. It fires on the first connection where that happens.
type Trip struct {
	kind    tripKind
	dir     Direction
	left    int // bytes, of resetAfter
	pattern []byte
	answer  []byte
	fired   chan struct{}
}

type tripKind int

const (
	resetAfter tripKind = iota
	resetOn
	resetAnswer
)

// Fired is closed when it has reset a connection.
func (t *Trip) Fired() <-chan struct{} { return t.fired }

// ResetAfter resets the connection that carries the n-th byte from now on in a direction, right after it. What the other
// side has not read yet by then is lost with it.
func (p *Proxy) ResetAfter(d Direction, n int) *Trip {
	return p.arm(&Trip{kind: resetAfter, dir: d, left: n})
}

// ResetOn resets a connection right before it would pass on pattern, of 256 bytes at most.
func (p *Proxy) ResetOn(d Direction, pattern string) *Trip {
	return p.arm(&Trip{kind: resetOn, dir: d, pattern: []byte(pattern)})
}

// ResetAnswer lets a request pass and resets the connection in place of the answer: the server has done what it was asked
// for, and the client does not learn it. The answer is the first thing after the request that holds answer; the empty
// string is in everything.
func (p *Proxy) ResetAnswer(request, answer string) *Trip {
	return p.arm(&Trip{kind: resetAnswer, pattern: []byte(request), answer: []byte(answer)})
}

func (p *Proxy) arm(t *Trip) *Trip {
	if len(t.pattern) > longestPattern || len(t.answer) > longestPattern {
		panic("the pattern of a trip is too long")
	}
	t.fired = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trips = append(p.trips, t)
	return t
}

// check returns what of data may pass, and the trip that fires after it.
func (p *Proxy) check(l *link, d Direction, tail, data []byte) ([]byte, *Trip) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, t := range p.trips {
		if cut := t.at(l, d, tail, data); cut >= 0 {
			p.trips = slices.Delete(p.trips, i, i+1)
			return data[:cut], t
		}
	}
	return data, nil
}

// at is where in data the connection breaks, or -1.
func (t *Trip) at(l *link, d Direction, tail, data []byte) int {
	switch {
	case t.kind == resetAfter && t.dir&d != 0:
		if t.left > len(data) {
			t.left -= len(data)
			return -1
		}
		return t.left
	case t.kind == resetOn && t.dir&d != 0:
		return find(tail, data, t.pattern)
	case t.kind == resetAnswer && d == Up:
		if find(tail, data, t.pattern) >= 0 {
			l.seen[t] = true
		}
	case t.kind == resetAnswer && l.seen[t]:
		return find(tail, data, t.answer)
	}
	return -1
}

// find returns where in data the pattern begins, 0 if it begins in tail, or -1.
func find(tail, data, pattern []byte) int {
	tail = tail[max(0, len(tail)-max(0, len(pattern)-1)):]
	i := bytes.Index(slices.Concat(tail, data), pattern)
	if i < 0 {
		return -1
	}
	return max(0, i-len(tail))
}
