// Package proof finds out from the outside what became of messages: which were committed, where they are stored, and
// whether one was lost, doubled, reordered or invented. It reads tables and streams itself and shares no code with the
// counters of the product, so that a test can trust it where the product is in doubt.
package proof
