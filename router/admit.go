package router

// admit waits for what r needs before it may start, and holds the message meanwhile; false if it should not begin any
// more. While the circuit is open it holds none of the transactions that other handlers need, too.
func (c *chain) admit(r *run) (leave func(), ok bool) {
	if !c.take(c.slots) {
		return nil, false
	}
	units := false
	leave = func() {
		if units {
			<-c.units
		}
		<-c.slots
	}
	for c.hold(r) {
		if units = c.units != nil && c.take(c.units); c.units != nil && !units || !c.awaitTurn(r) {
			break
		}
		if !c.breaker.stops(r) {
			c.begun(r)
			return leave, true
		}
		if units {
			<-c.units
			units = false
		}
	}
	c.breaker.giveBack(r)
	leave()
	return nil, false
}

// hold keeps r back while the circuit is open; false if it should not begin any more.
func (c *chain) hold(r *run) bool {
	if c.breaker.holds() {
		c.unbegun(r) // the process may die before a stop can say so
	}
	return c.breaker.await(r, c.runs)
}

// take waits for a place, before the attempt's time begins to run; false if no run should begin any more.
func (c *chain) take(places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-c.runs.stopping:
		return false
	}
}
