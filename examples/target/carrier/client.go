package carrier

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
)

// Config is the target's settings: MILLBRIDGE_CARRIER_BASE_URL and so on.
type Config struct {
	BaseURL      *url.URL           `required:"true" doc:"where the carrier's API is"`
	Token        configgroup.Secret `required:"true" doc:"bearer token"`
	Timeout      time.Duration      `default:"10s" doc:"of one request"`
	AllowPrivate bool               `doc:"the carrier is in our own network"`
}

// Client calls the carrier.
type Client struct {
	base  *url.URL
	token configgroup.Secret
	http  *http.Client
}

// NewClient returns a client. It is made once, at the start.
func NewClient(cfg Config) *Client {
	network := outbound.Network{AllowPrivate: cfg.AllowPrivate}
	return &Client{base: cfg.BaseURL, token: cfg.Token, http: outbound.Client(network, cfg.Timeout)}
}

// Book books a parcel. The carrier honours the key: with one that it has seen before it answers what it has answered
// then, and books nothing.
func (c *Client) Book(ctx context.Context, key string, p Parcel) (Booked, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return Booked{}, handlers.Permanent(fmt.Errorf("book a parcel: %w", err))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.JoinPath("parcels").String(), bytes.NewReader(body))
	if err != nil {
		return Booked{}, handlers.Permanent(fmt.Errorf("book a parcel: %w", err))
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.token.Reveal())
	req.Header.Set("Idempotency-Key", key)
	res, err := c.http.Do(req)
	if err != nil {
		return Booked{}, fmt.Errorf("book a parcel: %w", err) // temporary, unless the address is not allowed
	}
	answer, err := outbound.Read(res) // says by its kind whether to try again
	if err != nil {
		return Booked{}, fmt.Errorf("book a parcel: %w", err)
	}
	var booked Booked
	if err := json.Unmarshal(answer, &booked); err != nil || booked.Number == "" {
		return Booked{}, handlers.Permanent(errors.New("book a parcel: the answer has no number"))
	}
	return booked, nil
}
