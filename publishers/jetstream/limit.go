package jetstream

// A batchLimit decides how many rows go into the next batch. When the server refuses a batch because of one of its
// rows without saying which, the next ones are halves, the left one first, until that row is alone in a batch.
type batchLimit struct {
	most    int // rows the server takes in one batch
	next    int // rows of the next batch
	suspect int // so many rows from here on hold a refused one; 0 if unknown
}

func newBatchLimit(most int) batchLimit { return batchLimit{most: most, next: most} }

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
