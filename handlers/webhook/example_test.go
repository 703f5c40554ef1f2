package webhook_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/schema"
)

// A receiver that takes each message once, and the target that posts to it. Signing with ed25519, the receiver needs the
// public key only.
func ExampleReceiver() {
	const secretKey = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	receiver, err := webhook.NewReceiver(webhook.ReceiverConfig{
		Keys:   []configgroup.Secret{configgroup.NewSecret("whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=")},
		Ledger: webhook.NewMemory(100_000),
	})
	if err != nil {
		panic(err)
	}
	shop := httptest.NewServer(receiver.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // it is there in whole
		fmt.Printf("took %s, key %s\n", body, r.Header.Get("Idempotency-Key"))
	})))
	defer shop.Close()

	post, err := webhook.New(webhook.Config{
		URL:      configgroup.NewSecret(shop.URL + "/hooks?token=x"),
		Secrets:  []configgroup.Secret{configgroup.NewSecret(secretKey)},
		Settings: outbound.Settings{AllowPrivate: true},
	})
	if err != nil {
		panic(err)
	}
	job := schema.NewJob("shop", "order.placed", map[string]int{"order": 7}, schema.WithKey("order-7"))
	for range 2 { // the second time as after a crash
		fmt.Println(post.Handle(context.Background(), job))
	}
	// Output:
	// took {"order":7}, key order-7
	// <nil>
	// <nil>
}

// What the handler writes commits together with the note that the message was taken.
func ExampleInTx() {
	var db *sql.DB // of the receiver, with CREATE TABLE taken_webhooks (id text PRIMARY KEY)
	ledger := webhook.InTx(db, func(ctx context.Context, tx *sql.Tx, id string) (bool, error) {
		res, err := tx.ExecContext(ctx, "INSERT INTO taken_webhooks (id) VALUES ($1) ON CONFLICT DO NOTHING", id)
		if err != nil {
			return false, err
		}
		n, err := res.RowsAffected()
		return n == 1, err
	})
	handle := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, _ := webhook.Tx(r.Context())
		body, _ := io.ReadAll(r.Body)
		if _, err := tx.ExecContext(r.Context(), "INSERT INTO orders (body) VALUES ($1)", body); err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
		}
	})
	receiver, err := webhook.NewReceiver(webhook.ReceiverConfig{
		Keys:   []configgroup.Secret{configgroup.NewSecret("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")},
		Ledger: ledger,
	})
	if err != nil {
		panic(err)
	}
	http.Handle("POST /hooks", receiver.Handler(handle))
}

// A chat that wants a text of its own making.
func ExampleConfig() {
	chat, err := webhook.New(webhook.Config{
		URL:     configgroup.NewSecret("https://chat.example.com/services/T0/B0/secret"),
		Format:  webhook.Raw,
		Payload: `{"text": "New order {{.payload.order}} by {{.payload.customer.name}}", "order": {{.payload}}}`,
	})
	if err != nil {
		panic(err)
	}
	event := schema.NewEvent("order.placed", []byte(`{"order": 7, "customer": {"name": "Ada \"A.\" Lovelace"}}`))
	list, err := chat.(handlers.Previewer).Preview(context.Background(), event)
	if err != nil {
		panic(err)
	}
	fmt.Println(list[0].Do)
	fmt.Println(list[0].Header["content-type"])
	fmt.Println(list[0].Body)
	// Output:
	// POST https://chat.example.com/***
	// application/json
	// {"text": "New order 7 by Ada \"A.\" Lovelace", "order": {"order": 7, "customer": {"name": "Ada \"A.\" Lovelace"}}}
}
