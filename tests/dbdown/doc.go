// Package dbdown takes the database away from a bridge at work, in every way that a database can fail, and checks from
// the outside that nothing is lost, doubled, reordered or invented, and that all goes on by itself.
package dbdown
