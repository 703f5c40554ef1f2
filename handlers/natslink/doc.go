// Package natslink is the connection to NATS servers of others, for the targets that talk to them: where the servers are
// and how to sign in ([Settings]), one connection that is made at its first use and comes back by itself ([Link]), and
// what a fault of NATS means for a handler's error.
//
// # Kinds of errors
//
//	no connection, no answer in time, no responders   temporary
//	sign-in refused                                   temporary, again after [SignInWait]: an operator must act
//	subject not permitted                             temporary, again after [SignInWait]
//	message larger than the server takes              permanent
//	the run's context has ended                       its cause
//
// A subject that is not permitted is noticed at once, although the server says so only on the side. So is a connection
// that breaks off while an answer is waited for.
package natslink
