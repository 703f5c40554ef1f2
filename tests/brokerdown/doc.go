// Package brokerdown lets NATS and the network to it fail in every way we know of while messages are published,
// forwarded and handled, and looks afterwards, from the outside, at what has become of each of them. With the tag long it
// waits as long as production does and fails more often.
package brokerdown
