// Package outbound is HTTP to the systems that targets are for: one pool of connections per set of rules in the whole
// process, and the meaning of an answer for a handler's error.
//
// [Client] gives each target its client, made once at start. Targets with the same [Network] share connections; targets
// with other rules never do, because a connection that is there already is not checked again.
//
// # What may be reached
//
// Addresses are checked where the connection is made, after the name was resolved, so that neither a name that changes
// its answer nor an address in disguise leads inside. A refused address is a permanent error, without a connection.
// Private networks need an explicit opt-in: see [Network]. What cannot be told from outside are the IPv4 addresses behind a
// NAT64 prefix of one's own: a network that has one must filter them itself. Proxy settings of the environment are ignored: the
// environment must not decide where requests with credentials go.
//
// # What is bounded
//
// Dial and TLS handshake (10 seconds each), the headers of an answer (64 KiB), idle connections (a minute), the whole
// request ([Client]'s timeout), and with [Read] the body (1 MiB). Redirects are not followed: they are answers like any
// other, because a request that has an effect must not have it somewhere else. A connection of HTTP/2 that has gone silent
// is given up after 15 seconds, so that the requests that share it do not all wait for it.
//
// One more thing that Go's transport does: a request whose kept connection turns out to be closed is sent again by
// itself, if it is a GET, or has an Idempotency-Key. Send the key, and it does no harm.
//
// # Secrets
//
// Errors of an [http.Client] name the whole URL, and they end up in logs and dead letters: keep tokens in headers. What a
// server has sent is in no error: it may be the token that it got.
package outbound
