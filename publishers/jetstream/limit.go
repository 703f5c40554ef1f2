package jetstream

import (
	"time"

	"github.com/millbridge/millbridge/schema"
)

// leastBatchBytes is how small batches become on a slow network, a single row that is larger apart.
const leastBatchBytes = 64 << 10

// A batchLimit decides how many rows go into the next batch. When the server refuses a batch because of one of its
// rows without saying which, the next ones are halves, the left one first, until that row is alone in a batch.
type batchLimit struct {
	most    int // rows the server takes in one batch
	next    int // rows of the next batch
	suspect int // so many rows from here on hold a refused one; 0 if unknown
	bytes   int // of the next batch
}

func newBatchLimit(most int) batchLimit {
	return batchLimit{most: most, next: most, bytes: schema.MaxBatchBytes}
}

// unanswered notes that the answer to a batch did not come in time. On a slow network that is because of its size: as long
// as it takes, none of its rows is there, and nobody knows whether they will be.
func (l *batchLimit) unanswered() { l.bytes = max(leastBatchBytes, l.bytes/4) }

// answered notes how long the answer to a batch took, of the time that there is.
func (l *batchLimit) answered(took, limit time.Duration) {
	switch {
	case took > limit/2:
		l.bytes = max(leastBatchBytes, l.bytes/2)
	case took < limit/4:
		l.bytes = min(2*l.bytes, schema.MaxBatchBytes)
	}
}

// slow reports whether the network is slow, so that a batch that is staged ahead would only be in the way.
func (l *batchLimit) slow() bool { return l.bytes < schema.MaxBatchBytes }

// refused notes that a batch of n rows was refused because of one of them.
func (l *batchLimit) refused(n int) {
	l.suspect = n
	l.next = max(1, n/2)
}

// full notes that the server has no room for n rows.
func (l *batchLimit) full(n int) {
	l.suspect = 0
	l.next = max(1, n/2)
}

// tooMany notes that the server never takes n rows in one batch.
func (l *batchLimit) tooMany(n int) {
	l.most = max(1, n/2)
	l.next = l.most
}

// sent notes that n rows were taken.
func (l *batchLimit) sent(n int) {
	if l.suspect > n {
		l.suspect -= n
		l.next = max(1, l.suspect/2)
		return
	}
	l.suspect = 0
	l.next = min(2*l.next, l.most)
}

// parked notes that the refused row is out of the way. Others like it may follow, so batches grow from one row.
func (l *batchLimit) parked() {
	l.suspect = 0
	l.next = 1
}
