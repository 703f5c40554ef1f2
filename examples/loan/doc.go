// Command loan is an interlibrary loan as a saga, from the patron's request to the return of the book: it asks a
// catalogue who has the book, asks one library after the other until one agrees, waits until the patron has brought it
// back, and takes everything back when it cannot be lent. Catalogue, libraries and desk are HTTP servers; each honours
// the idempotency key of a request.
//
//	go run ./examples/loan
//
// The saga is in loan.go, the targets that call the servers in targets.go. The tests kill the program at each step.
package main
