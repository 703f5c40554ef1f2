// Package handlers is what the author of a target writes against.
//
// A [Handler] takes an envelope and returns an error or none. It is called at least once for each message; the
// idempotency key (see [CallFrom]) makes a repeat harmless at the other side. [Actions] maps action names to functions
// with typed arguments. A [Target] gives a handler its name and its [Policy]; a [Subscription] does the same for events.
//
// The kind of the returned error decides what happens next: [Permanent] gives the message up at once, [RetryAfter]
// waits as long as the other side asked for, anything else is tried again by the policy.
//
// This package knows neither the broker nor the router.
package handlers
