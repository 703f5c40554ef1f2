package ncip

// LookupUserArgs are the args of lookup-user.
type LookupUserArgs struct {
	User ID `json:"user"`
	// Elements are values of UserElementType; without any, User Id, User Privilege and Block Or Trap are asked for.
	Elements       []string `json:"elements,omitempty"`
	LoanedItems    bool     `json:"loaned_items,omitempty"`
	RequestedItems bool     `json:"requested_items,omitempty"`
	FiscalAccount  bool     `json:"fiscal_account,omitempty"`
}

// User is the answer of lookup-user. What is in it depends on what was asked for, and on what the responder tells.
type User struct {
	User           *ID             `json:"user,omitempty"`
	IDs            []ID            `json:"ids,omitempty"` // further ones
	Name           string          `json:"name,omitempty"`
	GivenName      string          `json:"given_name,omitempty"`
	Surname        string          `json:"surname,omitempty"`
	Addresses      []Address       `json:"addresses,omitempty"`
	Privileges     []Privilege     `json:"privileges,omitempty"`
	Blocks         []Block         `json:"blocks,omitempty"`
	Languages      []string        `json:"languages,omitempty"`
	LoanedItems    []LoanedItem    `json:"loaned_items,omitempty"`
	RequestedItems []RequestedItem `json:"requested_items,omitempty"`
	Balance        *Amount         `json:"balance,omitempty"`
}

// An Address is one of a user's addresses, electronic or physical.
type Address struct {
	Role       string   `json:"role,omitempty"`
	Type       string   `json:"type,omitempty"`       // as mailto
	Electronic string   `json:"electronic,omitempty"` // e-mail, telephone
	Lines      []string `json:"lines,omitempty"`
	Locality   string   `json:"locality,omitempty"`
	Region     string   `json:"region,omitempty"`
	PostalCode string   `json:"postal_code,omitempty"`
	Country    string   `json:"country,omitempty"`
}

// A Privilege is what a user may do at an agency.
type Privilege struct {
	Agency      string `json:"agency,omitempty"`
	Type        string `json:"type,omitempty"`
	Status      string `json:"status,omitempty"`
	Description string `json:"description,omitempty"`
	ValidFrom   Date   `json:"valid_from,omitempty"`
	ValidTo     Date   `json:"valid_to,omitempty"`
}

// A Block keeps a user from something.
type Block struct {
	Agency    string `json:"agency,omitempty"`
	Type      string `json:"type"`
	ValidFrom Date   `json:"valid_from,omitempty"`
	ValidTo   Date   `json:"valid_to,omitempty"`
}

// A LoanedItem is one that a user has.
type LoanedItem struct {
	Item    *ID    `json:"item,omitempty"`
	Title   string `json:"title,omitempty"`
	DateDue Date   `json:"date_due,omitempty"` // empty for an indefinite loan
}

// A RequestedItem is one that a user waits for.
type RequestedItem struct {
	Request   *ID    `json:"request,omitempty"`
	Item      *ID    `json:"item,omitempty"`
	Type      string `json:"type,omitempty"`
	Status    string `json:"status,omitempty"`
	Title     string `json:"title,omitempty"`
	Placed    Date   `json:"placed,omitempty"`
	Pickup    string `json:"pickup_location,omitempty"`
	PickupBy  Date   `json:"pickup_expiry_date,omitempty"`
	QueuePos  string `json:"hold_queue_position,omitempty"`
	Available Date   `json:"pickup_date,omitempty"`
}

// An Amount is in the smallest unit of its currency.
type Amount struct {
	Currency string `json:"currency"`
	Value    string `json:"value"`
}

func (t *target) lookupUser(a LookupUserArgs, _ string) (plan, error) {
	if a.User.Value == "" {
		return plan{}, missing("user.value")
	}
	if a.Elements == nil {
		a.Elements = []string{"User Id", "User Privilege", "Block Or Trap"}
	}
	return plan{
		send: message{"LookupUser", join(
			[]element{a.User.element("User")}, texts("UserElementType", a.Elements),
			[]element{flag("LoanedItemsDesired", a.LoanedItems), flag("RequestedItemsDesired", a.RequestedItems), flag("UserFiscalAccountDesired", a.FiscalAccount)},
		)},
		read: func(n *node) any { return readUser(n) },
	}, nil
}

func readUser(n *node) *User {
	fields := n.child("UserOptionalFields")
	name := fields.at("NameInformation", "PersonalNameInformation")
	u := &User{
		User: readID(n, "User"), Name: name.value("UnstructuredPersonalUserName"),
		GivenName: name.value("StructuredPersonalUserName", "GivenName"), Surname: name.value("StructuredPersonalUserName", "Surname"),
		Languages: fields.values("UserLanguage"),
	}
	for _, f := range fields.all("UserId") {
		u.IDs = append(u.IDs, ID{f.value("UserIdentifierValue"), f.value("UserIdentifierType"), f.value("AgencyId")})
	}
	for _, f := range fields.all("UserAddressInformation") {
		u.Addresses = append(u.Addresses, readAddress(f))
	}
	for _, f := range fields.all("UserPrivilege") {
		u.Privileges = append(u.Privileges, Privilege{
			f.value("AgencyId"), f.value("AgencyUserPrivilegeType"), f.value("UserPrivilegeStatus", "UserPrivilegeStatusType"),
			f.value("UserPrivilegeDescription"), Date(f.value("ValidFromDate")), Date(f.value("ValidToDate")),
		})
	}
	for _, f := range fields.all("BlockOrTrap") {
		u.Blocks = append(u.Blocks, Block{f.value("AgencyId"), f.value("BlockOrTrapType"), Date(f.value("ValidFromDate")), Date(f.value("ValidToDate"))})
	}
	for _, f := range n.all("LoanedItem") {
		u.LoanedItems = append(u.LoanedItems, readLoaned(f))
	}
	for _, f := range n.all("RequestedItem") {
		u.RequestedItems = append(u.RequestedItems, readRequested(f))
	}
	if b := n.at("UserFiscalAccount", "AccountBalance"); b != nil {
		u.Balance = &Amount{b.value("CurrencyCode"), b.value("MonetaryValue")}
	}
	return u
}

func readAddress(n *node) Address {
	a := Address{Role: n.value("UserAddressRoleType"), Type: n.value("ElectronicAddress", "ElectronicAddressType"), Electronic: n.value("ElectronicAddress", "ElectronicAddressData")}
	p := n.child("PhysicalAddress")
	if p == nil {
		return a
	}
	a.Type = p.value("PhysicalAddressType")
	if s := p.child("StructuredAddress"); s != nil {
		for _, part := range []string{"LocationWithinBuilding", "HouseName", "Street", "PostOfficeBox", "Line1", "Line2"} {
			if v := s.value(part); v != "" {
				a.Lines = append(a.Lines, v)
			}
		}
		a.Locality, a.Region, a.PostalCode, a.Country = s.value("Locality"), s.value("Region"), s.value("PostalCode"), s.value("Country")
	}
	if v := p.value("UnstructuredAddress", "UnstructuredAddressData"); v != "" {
		a.Lines = append(a.Lines, v)
	}
	return a
}

func readLoaned(n *node) LoanedItem {
	return LoanedItem{readID(n, "Item"), n.value("Title"), Date(n.value("DateDue"))}
}

func readRequested(n *node) RequestedItem {
	return RequestedItem{
		Request: readID(n, "Request"), Item: readID(n, "Item"), Type: n.value("RequestType"), Status: n.value("RequestStatusType"), Title: n.value("Title"),
		Placed: Date(n.value("DatePlaced")), Pickup: n.value("PickupLocation"), PickupBy: Date(n.value("PickupExpiryDate")),
		QueuePos: n.value("HoldQueuePosition"), Available: Date(n.value("PickupDate")),
	}
}

// LookupItemArgs are the args of lookup-item. It names either the item or a request for it.
type LookupItemArgs struct {
	Item    *ID `json:"item,omitempty"`
	Request *ID `json:"request,omitempty"`
	// Elements are values of ItemElementType; without any, Bibliographic Description, Circulation Status, Hold Queue
	// Length, Item Description and Location are asked for.
	Elements   []string `json:"elements,omitempty"`
	Borrower   bool     `json:"borrower,omitempty"`   // who has it
	Requesters bool     `json:"requesters,omitempty"` // who waits for it
}

// Item is the answer of lookup-item.
type Item struct {
	Item         *ID         `json:"item,omitempty"`
	Request      *ID         `json:"request,omitempty"`
	Borrower     *ID         `json:"borrower,omitempty"`
	Requesters   []ID        `json:"requesters,omitempty"`
	HoldPickup   Date        `json:"hold_pickup_date,omitempty"`
	DateRecalled Date        `json:"date_recalled,omitempty"`
	Fields       *ItemFields `json:"fields,omitempty"`
}

func (t *target) lookupItem(a LookupItemArgs, _ string) (plan, error) {
	if (a.Item == nil) == (a.Request == nil) {
		return plan{}, missing("item or request")
	}
	if a.Item != nil && a.Item.Value == "" {
		return plan{}, missing("item.value")
	}
	if a.Request != nil && a.Request.Value == "" {
		return plan{}, missing("request.value")
	}
	if a.Elements == nil {
		a.Elements = []string{"Bibliographic Description", "Circulation Status", "Hold Queue Length", "Item Description", "Location"}
	}
	return plan{
		send: message{"LookupItem", join(
			[]element{a.Item.optional("Item"), a.Request.optional("Request")}, texts("ItemElementType", a.Elements),
			[]element{flag("CurrentBorrowerDesired", a.Borrower), flag("CurrentRequestersDesired", a.Requesters)},
		)},
		read: func(n *node) any { return readItem(n) },
	}, nil
}

func readItem(n *node) *Item {
	item := &Item{
		Item: readID(n, "Item"), Request: readID(n, "Request"), Borrower: readID(n.at("ItemTransaction", "CurrentBorrower"), "User"),
		HoldPickup: Date(n.value("HoldPickupDate")), DateRecalled: Date(n.value("DateRecalled")), Fields: readItemFields(n),
	}
	for _, r := range n.child("ItemTransaction").all("CurrentRequester") {
		if id := readID(r, "User"); id != nil {
			item.Requesters = append(item.Requesters, *id)
		}
	}
	return item
}
