// Package longtx shows what transactions that stay open for long, and commits that do not wait for the disk, do to
// messages: those of others flow at once, their own follow in order, and nothing is published that a crash undoes.
package longtx
