package main

import (
	"context"
	"database/sql"
	"net/url"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/ncip"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/reshare"
)

// targets returns the systems that a loan talks to, two of types that the bridge brings along and one of our own.
func targets(townURL string, p handlers.Policy) ([]handlers.Target, error) {
	base, err := url.Parse(townURL)
	if err != nil {
		return nil, err
	}
	here := outbound.Settings{AllowPrivate: true} // the servers of the example are on this machine
	consortium, err := reshare.New(reshare.Config{
		BaseURL: base, Tenant: "east", Username: "bridge", Password: configgroup.NewSecret(password), Settings: here,
	})
	if err != nil {
		return nil, err
	}
	ils, err := ncip.New(ncip.Config{BaseURL: base.JoinPath("ncip"), FromAgency: "RESHARE", ToAgency: "EAST", Settings: here})
	if err != nil {
		return nil, err
	}
	var letters handlers.Actions
	handlers.OnJob(&letters, write, writeLetter)
	ordered, tx := p, p
	ordered.Ordered = true // what takes a job back does not overtake it
	tx.Mode = handlers.ModeTx
	return []handlers.Target{
		{Name: "reshare", Handler: consortium, Policy: ordered},
		{Name: "ils", Handler: ils, Policy: ordered},
		{Name: "letters", Handler: &letters, Policy: tx},
	}, nil
}

// A Letter is for a patron.
type Letter struct{ Patron, Text string }

// writeLetter puts a letter among those that are to be posted, in the transaction that marks its job as done: so each is
// there once.
func writeLetter(ctx context.Context, l Letter, _ string) error {
	tx, err := handlers.Tx[*sql.Tx](ctx)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO letters VALUES (?, ?)`, l.Patron, l.Text)
	return err
}
