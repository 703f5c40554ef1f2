// Package reshare is a target for Project ReShare: it makes patron requests in mod-rs and performs actions on them,
// through the gateway of a FOLIO system (Okapi, or Kong in its place).
//
// # Logging in
//
// Each tenant has its own user. A token is fetched with POST /authn/login-with-expiry, or with /authn/login where a
// gateway does not have that yet, and goes along in x-okapi-token. It is renewed halfway to its end, by logging in again
// as FOLIO's own client for modules does: whoever has the password gains nothing from a refresh token. However many
// messages need a token, one of them fetches it. A token that is refused is renewed and the request made once more.
//
// Whoever is not let in, because the password is wrong, the user blocked or not active, waits: the message is snoozed for
// 15 minutes, which costs no attempt, and in that time nobody of this process logs in again for the tenant. An operator's
// mistake neither makes dead letters of everything nor blocks the user, which FOLIO does after a few refusals.
//
// # Tenants
//
// A message goes to its own tenant, one without a tenant to the configured one. A message of a tenant without credentials
// is a dead letter.
//
// # Actions
//
//	create-request   makes a patron request               [CreateArgs]   [Created]
//	perform-action   performs an action of mod-rs on one  [PerformArgs]  [Performed]
//	get-request      reads one, and what is valid now     [GetArgs]      [Got]
//	list-requests    searches                             [ListArgs]     [Listed]
//
// ReShare calls nobody when another library has answered. Whoever waits for that asks with get-request and names the
// states that are no answer yet, under while: the job is snoozed as long as the request is in one of them.
//
// # At least once
//
// mod-rs honours no idempotency key, and a client cannot choose the id of a request. So this package looks before it sends,
// always:
//
//   - create-request writes [Reference], made from the idempotency key, into the request's patronReference, and looks for
//     it first.
//   - perform-action reads the request first. If the request is in a state that the action leads to, or the action is not
//     valid any more and the request's history has such a state, it is done already. Which states those are is known for the
//     actions of mod-rs's own state models; for others the publisher says it in [PerformArgs]. A message counts as sent if
//     the history has one of the same text. What is not valid, and cannot be shown to be done, is permanent.
//
// Between looking and sending nobody else of this process acts on the same request; other processes are kept away by the
// bridge's lease. What is left: an action that has become valid again in the meantime, because it was undone or a cancel was
// refused, is performed again by a late repeat.
//
// # What an answer means
//
//	2xx that can be read                           done
//	2xx that cannot be read                        temporary
//	401                                            a new token, and once more; then as a refused login
//	400 for a busy request, a failure of the       temporary
//	library's own system, or of FOLIO's rights
//	404 of a gateway that knows no such module     temporary
//	429, 5xx, no or no complete answer             temporary, with the wait that is asked for
//	other 4xx, redirects                           permanent
//	address not allowed                            permanent, without a connection
//
// Errors quote at most one short line of what the other side says, without tokens and passwords, and no search terms.
package reshare
