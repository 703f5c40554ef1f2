package restore

import (
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// sources returns where each stored message comes from.
func (w *world) sources() map[string]string {
	w.Helper()
	from := make(map[string]string)
	for _, name := range []string{"MB_JOBS", "MB_EVENTS"} {
		s, err := w.js.Stream(w.Context(), name)
		if err != nil {
			w.Fatal(err)
		}
		for seq := uint64(1); ; {
			m, err := s.GetMsg(w.Context(), seq, natsjs.WithGetMsgSubject("mb.>"))
			if err != nil {
				break
			}
			if id := m.Header.Get(schema.HeaderID); id != "" {
				from[id] = m.Header.Get(schema.HeaderSource)
			}
			seq = m.Sequence + 1
		}
	}
	return from
}

// source is what the messages of this database's outbox carry.
func (w *world) source() string {
	w.Helper()
	info, err := w.store.Info(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return schema.SourceOf(info.ID)
}
