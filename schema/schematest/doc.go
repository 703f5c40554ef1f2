// Package schematest is the conformance suite of the stores: what publishers, forwarders, handlers and operators rely
// on must be the same on every database. A store's own tests call [Run] and add what only that database has.
package schematest
