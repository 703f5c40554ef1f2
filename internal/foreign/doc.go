// Package foreign reads the rows that other outboxes have exported and turns those that are still to be delivered into
// envelopes. Two shapes of rows are known; each row says by its columns which it has.
package foreign
