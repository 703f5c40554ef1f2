// Package crash kills real processes at exact places and at random times, and proves from the outside that nothing was
// lost, doubled, reordered or invented. Each world of a test has a database, a server, producers, forwarders, workers and
// operators as processes of their own; what they do is compared by package proof, which shares nothing with the product.
//
// The tests kill each place once. The long run, `make crash`, goes on for as long as it is told to.
package crash
