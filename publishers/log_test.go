package publishers_test

import (
	"bytes"
	"database/sql"
	"log/slog"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/schema"
)

func TestLogsNoPayloads(t *testing.T) {
	onEach(t, testLog[pgx.Tx], testLog[*sql.Tx])
}

func testLog[Tx any](t *testing.T, d *database[Tx]) {
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug - 8}))
	outbox := publishers.NewOutbox(d.store, publishers.Config{Logger: logger})
	msg := message.NewMessage("id", []byte("secret"))
	msg.Metadata["token"] = "secret"
	d.in(t, true, func(tx Tx) {
		must[[]schema.Receipt](t)(outbox.Publish(t.Context(), tx, schema.NewJob("mail", "send", []byte("secret"))))
		if err := outbox.Publisher(t.Context(), tx).Publish("jobs.mail.send", msg); err != nil {
			t.Error(err)
		}
	})
	must[[]schema.Receipt](t)(outbox.PublishAlone(t.Context(), schema.NewJob("mail", "send", []byte("secret"))))
	d.want(t, 1, 3)
	if n := strings.Count(out.String(), "msg=published"); n != 2 || strings.Contains(out.String(), "secret") || strings.Contains(out.String(), "args") {
		t.Errorf("logged:\n%s", out.String())
	}
}
