// Package cases plays the cases of docs/field-cases.md through the whole way of a message: published in a caller's
// transaction, forwarded, handled by targets, given up.
package cases
