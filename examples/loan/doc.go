// Command loan is an interlibrary loan as a saga, from the patron's wish until the book is on its way home. It talks to
// three systems: a consortium's ReShare and the library's own system over NCIP, with the targets that the bridge brings
// along, and a table of letters with a target of its own.
//
//	go run ./examples/loan
//
// The program prints the saga's ledger. The steps are listed in loan.go, and are functions of borrow.go and lend.go:
//
//	check      is the patron known and not blocked?        NCIP LookupUser
//	approve    make a request, wait for a library's yes    ReShare; undone by requesterCancel
//	ship       wait for the book                           ReShare, and the desk's signal that it is here
//	receive    tell the other library                      ReShare requesterReceived; undone as give-back
//	shelve     it is for this patron                       NCIP AcceptItem; undone as take-in
//	lend       lend it, write to them                      NCIP CheckOutItem, and the signal that it is back
//	take-in    off their account                           NCIP CheckInItem
//	give-back  send it home                                ReShare patronReturnedItem, shippedReturn
//
// No step calls anybody. It asks, commits, and waits in a state of its own until the answer comes as a message, hours or
// weeks later. ReShare itself asks one library after the other; as it calls nobody when one has answered, a job of ours
// looks at the request again and again, without using up attempts.
//
// The systems are local ones, from packages resharetest and nciptest, and town.go has the staff of the other libraries.
// For real ones there is nothing to change but what targets.go has in Go. The first two targets may as well stand in a
// millbridge.yaml, and run in a process of their own, "millbridge run":
//
//	targets:
//	  reshare:
//	    type: reshare
//	    base_url: https://okapi.example.org
//	    tenant: east
//	    username: bridge
//	    password_file: /run/secrets/reshare
//	    ordered: true
//	  ils:
//	    type: ncip
//	    base_url: https://ils.example.org/ncip
//	    from_agency: RESHARE
//	    to_agency: EAST
//	    ordered: true
//
// It is for a library whose ReShare does not call the library's system itself, as mod-rs can do at some of these steps.
//
// The tests refuse, delay and lose things, and kill the program at each step.
package main
