// Package ncip is a target that asks a library's system for what circulation needs, over NCIP (NISO Z39.83) version
// 2.02: who a user is, where an item is, and that something be requested, accepted, lent, taken back or renewed. One
// message is posted over HTTP, and its answer comes in the same exchange.
//
//	lookup-user          LookupUser
//	lookup-item          LookupItem
//	request-item         RequestItem
//	cancel-request-item  CancelRequestItem
//	accept-item          AcceptItem: an item of another library has come for a user
//	check-out-item       CheckOutItem
//	check-in-item        CheckInItem
//	renew-item           RenewItem
//
// Each has its args and its answer here as structs; what is answered goes back to whoever asked for a report. What the
// fields are called in NCIP, and where it is written, is in docs/targets/ncip.md.
//
// # Doing it once
//
// NCIP has no idempotency key. It has the RequestId, which the one who asks may choose: [RequestID] makes it of the
// message's key. That a responder refuses the second request of a number, the standard does not promise, and nothing
// like it is there for loans. So the target looks before it sends, always: whether the user has that request, that
// item, or that due date already. If so, it reports what it has found, with Already set, and sends nothing. After a
// problem it looks again: another run may have been faster, and "already lent" is not called the same by any two
// responders.
//
//	request-item         the user's requests, or the item looked up by request, have the RequestId
//	accept-item          likewise, and the item is the one that has come
//	check-out-item       the user's loans have the item, or its current borrower is the user
//	renew-item           likewise, and it is due later than it was, or when it shall be due
//	check-in-item        "Item Not Checked Out" is success; if the user is known, "Unknown Item" is, too, and somebody
//	                     else's loan is left alone
//	cancel-request-item  "Unknown Request" is success
//
// [Config.LookUps] says which look-ups the responder answers. Without any, a request, an acceptance or a check-out that
// succeeded unheard fails when it is repeated, and ends as a dead letter for somebody to look at; a renewal is made
// twice. Even with them two runs of one renewal can both happen, if the first was paused for longer than its lease
// between its look-up and its message, and the responder counts from the due date: DesiredDateDue closes that gap.
//
// # What an answer means
//
// HTTP first: 5xx, 408, 425 and 429 are temporary, other codes than 2xx permanent. Then NCIP: a [ProblemError] is
// temporary if all its problems are [TemporaryFailure], else permanent, those above excepted. What is no good NCIP message
// is permanent: of more than 1 MiB, nested or split up too much, in another encoding than UTF-8, with a document type. An
// answer in which none begins, such as the page of a proxy, is temporary.
// Unknown elements are skipped.
//
// Package nciptest has a responder for tests.
package ncip
