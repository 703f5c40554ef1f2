// Package resharetest is a local ReShare for tests and examples: a gateway that logs users in, and behind it patron
// requests of several tenants that go through mod-rs's states when actions are performed on them.
//
// It is an [net/http.Handler]; serve it with net/http/httptest. It answers as the sources of mod-rs, mod-login and
// mod-authtoken say, as far as the happy path of a loan, its refusal, its cancelling and messages go. What happens between
// libraries in seconds or days over ISO 18626 happens here at once: a new request has been checked and sent to the
// tenant's supplier when the answer to its creation has been written, and to the next one when a supplier cannot supply.
package resharetest
