package kvinbox_test

import (
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/router/kvinbox"
)

// The router takes it in a store's place; this package may not say so itself, since the router imports it.
var _ router.Inbox = (*kvinbox.Inbox)(nil)
