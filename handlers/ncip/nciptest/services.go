package nciptest

import (
	"fmt"
	"slices"
	"time"
)

// services are what a server answers. Each returns data or a problem; the server is locked.
var services = map[string]func(s *Server, m *node) (string, *Problem){
	"LookupUser": (*Server).lookupUser, "LookupItem": (*Server).lookupItem, "RequestItem": (*Server).requestItem,
	"CancelRequestItem": (*Server).cancelRequestItem, "AcceptItem": (*Server).acceptItem, "CheckOutItem": (*Server).checkOutItem,
	"CheckInItem": (*Server).checkInItem, "RenewItem": (*Server).renewItem,
}

func (s *Server) user(m *node) (User, *Problem) {
	id := m.value("UserId", "UserIdentifierValue")
	u, ok := s.users[id]
	if !ok {
		return User{}, &Problem{"Unknown User", "User is not known.", "UserIdentifierValue", id}
	}
	return u, nil
}

func (s *Server) item(m *node) (Item, *Problem) {
	id := m.value("ItemId", "ItemIdentifierValue")
	i, ok := s.items[id]
	if !ok {
		return Item{}, &Problem{"Unknown Item", "Item is not known.", "ItemIdentifierValue", id}
	}
	return i, nil
}

func (s *Server) itemID(id string) string {
	return element("ItemId", leaf("AgencyId", s.opts.Agency), leaf("ItemIdentifierType", "Barcode"), leaf("ItemIdentifierValue", id))
}

func (s *Server) userID(id string) string {
	return element("UserId", leaf("AgencyId", s.opts.Agency), leaf("UserIdentifierValue", id))
}

func (r Request) id() string {
	return element("RequestId", leaf("AgencyId", r.Agency), leaf("RequestIdentifierValue", r.ID))
}

func (s *Server) optional(i Item, wanted []string) string {
	var fields, status, queue, due string
	for _, w := range wanted {
		switch w {
		case "Bibliographic Description":
			fields += element("BibliographicDescription", leaf("Title", i.Title))
		case "Circulation Status":
			status = leaf("CirculationStatus", s.status(i))
		case "Hold Queue Length":
			n := 0
			for _, r := range s.requests {
				if r.Item == i.ID {
					n++
				}
			}
			queue = leaf("HoldQueueLength", fmt.Sprint(n))
		case "Item Description":
			due = element("ItemDescription", leaf("CallNumber", i.CallNumber)) + due
		case "Date Due":
			if loan, ok := s.loans[i.ID]; ok {
				due += stamp("DateDue", loan.Due)
			}
		}
	}
	if all := fields + status + queue + due; all != "" {
		return element("ItemOptionalFields", all)
	}
	return ""
}

func (s *Server) status(i Item) string {
	if _, ok := s.loans[i.ID]; ok {
		return "On Loan"
	}
	for _, r := range s.requests {
		if r.Item == i.ID && r.Status == "Available For Pickup" {
			return r.Status
		}
	}
	return "Available On Shelf"
}

func (s *Server) lookupUser(m *node) (string, *Problem) {
	u, p := s.user(m)
	if p != nil {
		return "", p
	}
	data := s.userID(u.ID)
	if m.child("LoanedItemsDesired") != nil {
		for _, item := range sortedKeys(s.loans) {
			if loan := s.loans[item]; loan.User == u.ID {
				data += element("LoanedItem", s.itemID(item), stamp("DateDue", loan.Due), leaf("Title", s.items[item].Title))
			}
		}
	}
	if m.child("RequestedItemsDesired") != nil {
		for _, r := range s.requests {
			if r.User == u.ID {
				item := ""
				if r.Item != "" {
					item = s.itemID(r.Item)
				}
				data += element("RequestedItem", r.id(), item, leaf("RequestType", r.Type), leaf("RequestStatusType", r.Status), stamp("DatePlaced", r.Placed),
					leaf("PickupLocation", r.Pickup), leaf("Title", s.items[r.Item].Title))
			}
		}
	}
	wanted := m.values("UserElementType")
	optional := ""
	if slices.Contains(wanted, "Name Information") && u.Name != "" {
		optional += element("NameInformation", element("PersonalNameInformation", leaf("UnstructuredPersonalUserName", u.Name)))
	}
	if slices.Contains(wanted, "Block Or Trap") && u.Blocked {
		optional += element("BlockOrTrap", leaf("AgencyId", s.opts.Agency), leaf("BlockOrTrapType", "Block Checkout"))
	}
	if optional != "" {
		data += element("UserOptionalFields", optional)
	}
	return data, nil
}

func (s *Server) lookupItem(m *node) (string, *Problem) {
	id := m.value("ItemId", "ItemIdentifierValue")
	prefix := ""
	if request := m.value("RequestId", "RequestIdentifierValue"); request != "" {
		at := s.request(m)
		if at < 0 {
			return "", &Problem{"Unknown Request", "Request is not known.", "RequestIdentifierValue", request}
		}
		r := s.requests[at]
		if prefix, id = r.id(), r.Item; id == "" {
			return prefix, nil
		}
	}
	i, ok := s.items[id]
	if !ok {
		return "", &Problem{"Unknown Item", "Item is not known.", "ItemIdentifierValue", id}
	}
	data := prefix + s.itemID(id)
	if loan, ok := s.loans[id]; ok && m.child("CurrentBorrowerDesired") != nil {
		data += element("ItemTransaction", element("CurrentBorrower", s.userID(loan.User)))
	}
	return data + s.optional(i, m.values("ItemElementType")), nil
}

// request finds the request that a message names, by number and agency; -1 if there is none.
func (s *Server) request(m *node) int {
	id, agency := m.value("RequestId", "RequestIdentifierValue"), m.value("RequestId", "AgencyId")
	return slices.IndexFunc(s.requests, func(r Request) bool {
		return r.ID == id && (agency == "" || r.Agency == agency || s.opts.OwnRequestIDs)
	})
}

func (s *Server) requestItem(m *node) (string, *Problem) {
	u, p := s.user(m)
	if p != nil {
		return "", p
	}
	if u.Blocked {
		return "", &Problem{"User Blocked", "User is blocked from requests.", "UserIdentifierValue", u.ID}
	}
	r := Request{
		ID: m.value("RequestId", "RequestIdentifierValue"), Agency: m.value("RequestId", "AgencyId"), User: u.ID, Type: m.value("RequestType"),
		Item: m.value("ItemId", "ItemIdentifierValue"), Record: m.value("BibliographicId", "BibliographicRecordId", "BibliographicRecordIdentifier"),
		Status: "In Process", Pickup: m.value("PickupLocation"), Placed: s.opts.Now(),
	}
	if r.Item != "" {
		if _, p := s.item(m); p != nil {
			return "", p
		}
	}
	for _, other := range s.requests {
		if !s.opts.OwnRequestIDs && r.ID != "" && other.ID == r.ID && other.Agency == r.Agency || r.Item != "" && other.User == r.User && other.Item == r.Item {
			return "", &Problem{"Duplicate Request", "Request for the Item already exists.", "RequestIdentifierValue", r.ID}
		}
	}
	if r.ID == "" || s.opts.OwnRequestIDs {
		s.numbers++
		r.ID, r.Agency = fmt.Sprintf("R-%d", s.numbers), s.opts.Agency
	}
	s.requests = append(s.requests, r)
	item := ""
	if r.Item != "" {
		item = s.itemID(r.Item)
	}
	data := r.id() + item + s.userID(u.ID) + leaf("RequestType", r.Type) + leaf("RequestScopeType", m.value("RequestScopeType"))
	return data + s.optional(s.items[r.Item], m.values("ItemElementType")), nil
}

func (s *Server) cancelRequestItem(m *node) (string, *Problem) {
	u, p := s.user(m)
	if p != nil {
		return "", p
	}
	at := s.request(m)
	if item := m.value("ItemId", "ItemIdentifierValue"); m.child("RequestId") == nil {
		at = slices.IndexFunc(s.requests, func(r Request) bool { return r.Item == item })
	}
	if at < 0 || s.requests[at].User != u.ID {
		return "", &Problem{Type: "Unknown Request", Detail: "No request of the user is known.", Element: "RequestIdentifierValue"}
	}
	r := s.requests[at]
	if r.Status != "In Process" {
		return "", &Problem{"Request Already Processed", "Request has been processed.", "RequestIdentifierValue", r.ID}
	}
	s.requests = slices.Delete(s.requests, at, at+1)
	return r.id() + s.userID(u.ID), nil
}

func (s *Server) acceptItem(m *node) (string, *Problem) {
	u, p := s.user(m)
	if p != nil {
		return "", p
	}
	id := m.value("ItemId", "ItemIdentifierValue")
	if id == "" {
		return "", &Problem{Type: "Needed Data Missing", Element: "ItemId"}
	}
	if _, ok := s.items[id]; ok {
		return "", &Problem{"Duplicate Item", "Item with this barcode exists already.", "ItemIdentifierValue", id}
	}
	s.items[id] = Item{ID: id, Title: m.value("ItemOptionalFields", "BibliographicDescription", "Title"), Foreign: true}
	r := Request{
		ID: m.value("RequestId", "RequestIdentifierValue"), Agency: m.value("RequestId", "AgencyId"), User: u.ID, Item: id, Type: "Hold",
		Status: "Available For Pickup", Pickup: m.value("PickupLocation"), Placed: s.opts.Now(),
	}
	if s.opts.OwnRequestIDs {
		s.numbers++
		r.ID, r.Agency = fmt.Sprintf("R-%d", s.numbers), s.opts.Agency
	}
	s.requests = append(s.requests, r)
	return r.id() + s.itemID(id), nil
}

func (s *Server) checkOutItem(m *node) (string, *Problem) {
	u, p := s.user(m)
	if p != nil {
		return "", p
	}
	i, p := s.item(m)
	if p != nil {
		return "", p
	}
	if u.Blocked {
		return "", &Problem{"User Blocked", "User is blocked from loans.", "UserIdentifierValue", u.ID}
	}
	if _, ok := s.loans[i.ID]; ok {
		return "", &Problem{"Item Already Checked Out", "Item is on loan.", "ItemIdentifierValue", i.ID}
	}
	if at := slices.IndexFunc(s.requests, func(r Request) bool { return r.Item == i.ID }); at >= 0 {
		if s.requests[at].User != u.ID {
			return "", &Problem{"Check Out Not Allowed - Item Has Outstanding Requests", "Somebody else waits for it.", "ItemIdentifierValue", i.ID}
		}
		s.requests = slices.Delete(s.requests, at, at+1)
	}
	loan := Loan{Item: i.ID, User: u.ID, Due: desired(m, s.opts.Now().Add(s.opts.LoanPeriod))}
	s.loans[i.ID] = loan
	return s.itemID(i.ID) + s.userID(u.ID) + stamp("DateDue", loan.Due) + leaf("RenewalCount", "0") + s.optional(i, m.values("ItemElementType")), nil
}

func desired(m *node, otherwise time.Time) time.Time {
	if t, err := time.Parse(time.RFC3339, m.value("DesiredDateDue")); err == nil {
		return t
	}
	return otherwise
}

func (s *Server) checkInItem(m *node) (string, *Problem) {
	i, p := s.item(m)
	if p != nil {
		return "", p
	}
	loan, ok := s.loans[i.ID]
	if !ok {
		return "", &Problem{"Item Not Checked Out", "There is no record of the check out of the Item.", "ItemIdentifierValue", i.ID}
	}
	delete(s.loans, i.ID)
	data := s.itemID(i.ID) + s.userID(loan.User) + s.optional(i, m.values("ItemElementType"))
	if i.Foreign {
		delete(s.items, i.ID)
	}
	return data, nil
}

func (s *Server) renewItem(m *node) (string, *Problem) {
	u, p := s.user(m)
	if p != nil {
		return "", p
	}
	i, p := s.item(m)
	if p != nil {
		return "", p
	}
	loan, ok := s.loans[i.ID]
	switch {
	case !ok || loan.User != u.ID:
		return "", &Problem{"Item Not Checked Out", "There is no record of the check out of the Item.", "ItemIdentifierValue", i.ID}
	case loan.Renewals >= s.opts.MaxRenewals:
		return "", &Problem{"Maximum Renewals Exceeded", "It was renewed often enough.", "ItemIdentifierValue", i.ID}
	case slices.ContainsFunc(s.requests, func(r Request) bool { return r.Item == i.ID }):
		return "", &Problem{"Renewal Not Allowed - Item Has Outstanding Requests", "Somebody waits for it.", "ItemIdentifierValue", i.ID}
	}
	from := s.opts.Now()
	if s.opts.RenewFromDue {
		from = loan.Due
	}
	due := desired(m, from.Add(s.opts.LoanPeriod))
	if !due.After(loan.Due) {
		return "", &Problem{"Item Not Renewable", "It would not be due later.", "ItemIdentifierValue", i.ID}
	}
	loan.Due, loan.Renewals = due, loan.Renewals+1
	s.loans[i.ID] = loan
	return s.itemID(i.ID) + s.userID(u.ID) + stamp("DateDue", due) + leaf("RenewalCount", fmt.Sprint(loan.Renewals)) + s.optional(i, m.values("ItemElementType")), nil
}

func sortedKeys(m map[string]Loan) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
