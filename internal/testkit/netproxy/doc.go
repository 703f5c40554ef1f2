// Package netproxy puts a bad network between a client and a server: connections that are cut, refused, slow, half open,
// or reset at a chosen byte.
package netproxy
