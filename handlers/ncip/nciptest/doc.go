// Package nciptest is a small NCIP 2.02 responder for tests of applications: it keeps users, items, loans and requests
// in memory and answers as libraries' systems do, problems included.
//
//	library := nciptest.New(nciptest.Options{})
//	library.AddUser(nciptest.User{ID: "2001"})
//	library.AddItem(nciptest.Item{ID: "39001", Title: "Emma"})
//	server := httptest.NewServer(library)
//
// It takes what the schema takes and nothing else, which [Check] decides. It knows LookupUser, LookupItem, RequestItem,
// CancelRequestItem, AcceptItem, CheckOutItem, CheckInItem and RenewItem. [Options] has what responders differ in, and
// the methods Fail, LoseAnswer and Intercept are for what goes wrong. The problems' texts are those of the standard, but
// for "Item Already Checked Out" and "Duplicate Item", which the standard has no words for: Evergreen's are taken.
package nciptest
