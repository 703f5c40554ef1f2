package inprocess

import "time"

// waiting is a message that waits for its time, or one for its handler's next attempt.
type waiting struct {
	due     time.Time
	n       int64
	message *message
	item    *item
}

type waitings []*waiting

func (w waitings) Len() int { return len(w) }

func (w waitings) Less(i, j int) bool {
	if w[i].due.Equal(w[j].due) {
		return w[i].n < w[j].n
	}
	return w[i].due.Before(w[j].due)
}

func (w waitings) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w *waitings) Push(x any)   { *w = append(*w, x.(*waiting)) }

func (w *waitings) Pop() any {
	last := (*w)[len(*w)-1]
	*w = (*w)[:len(*w)-1]
	return last
}
