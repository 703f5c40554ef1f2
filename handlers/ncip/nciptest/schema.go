package nciptest

import (
	"encoding/xml"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Namespace is that of NCIP 2.
const Namespace = "http://www.niso.org/2008/ncip"

// node is an element with what is in it.
type node struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Text     string     `xml:",chardata"`
	Children []*node    `xml:",any"`
}

func (n *node) child(path ...string) *node {
	for _, name := range path {
		var next *node
		if n != nil {
			for _, c := range n.Children {
				if c.XMLName.Local == name {
					next = c
					break
				}
			}
		}
		n = next
	}
	return n
}

func (n *node) value(path ...string) string {
	if n = n.child(path...); n == nil {
		return ""
	}
	return strings.TrimSpace(n.Text)
}

func (n *node) values(name string) []string {
	var list []string
	for _, c := range n.Children {
		if c.XMLName.Local == name {
			list = append(list, strings.TrimSpace(c.Text))
		}
	}
	return list
}

// content has the content of each element that has children: names in their order, with ?, *, + and |. It is written
// after the published schema, ncip_v2_02.xsd (https://groups.niso.org/schemas/ncip/), for the services of this package.
var content = map[string]string{
	"LookupUser":        "InitiationHeader? (UserId|AuthenticationInput+) UserElementType* LoanedItemsDesired? RequestedItemsDesired? UserFiscalAccountDesired? Ext?",
	"LookupItem":        "InitiationHeader? (ItemId|RequestId) ItemElementType* CurrentBorrowerDesired? CurrentRequestersDesired? Ext?",
	"RequestItem":       "InitiationHeader? MandatedAction? (UserId|AuthenticationInput+) (ItemId+|BibliographicId+ ItemId*) RequestId? RequestType RequestScopeType ItemOptionalFields? ShippingInformation? EarliestDateNeeded? NeedBeforeDate? PickupLocation? PickupExpiryDate? AcknowledgedFeeAmount? PaidFeeAmount? AcknowledgedItemUseRestrictionType* ItemElementType* UserElementType* Ext?",
	"CancelRequestItem": "InitiationHeader? MandatedAction? (UserId|AuthenticationInput+) (ItemId|RequestId ItemId?) RequestType RequestScopeType? AcknowledgedFeeAmount? PaidFeeAmount? ItemElementType* UserElementType* Ext?",
	"AcceptItem":        "InitiationHeader? MandatedAction? RequestId RequestedActionType UserId? ItemId? (DateForReturn|IndeterminateLoanPeriodFlag|NonReturnableFlag)? RenewalNotPermitted? FiscalTransactionInformation? ItemOptionalFields? UserOptionalFields? PickupLocation? PickupExpiryDate? Ext?",
	"CheckOutItem":      "InitiationHeader? MandatedAction? (UserId|AuthenticationInput+) ItemId RequestId? AcknowledgedFeeAmount? PaidFeeAmount? AcknowledgedItemUseRestrictionType* ShippingInformation? ResourceDesired? DesiredDateDue? ItemElementType* UserElementType* Ext?",
	"CheckInItem":       "InitiationHeader? MandatedAction? ItemId ItemElementType* UserElementType* Ext?",
	"RenewItem":         "InitiationHeader? MandatedAction? (UserId|AuthenticationInput+) ItemId ItemElementType* UserElementType* DesiredDateDue? DesiredDateForReturn? AcknowledgedFeeAmount? PaidFeeAmount? AcknowledgedItemUseRestrictionType* Ext?",

	"LookupUserResponse":        "ResponseHeader? (Problem+|UserId UserFiscalAccount* LoanedItemsCount* LoanedItem* RequestedItemsCount* RequestedItem* UserOptionalFields?) Ext?",
	"LookupItemResponse":        "ResponseHeader? (Problem+|(ItemId|RequestId ItemId?) HoldPickupDate? DateRecalled? ItemTransaction? ItemOptionalFields?) Ext?",
	"RequestItemResponse":       "ResponseHeader? (Problem+ RequiredFeeAmount? RequiredItemUseRestrictionType*|(ItemId|RequestId ItemId?) UserId RequestType RequestScopeType ShippingInformation? DateAvailable? HoldPickupDate? FiscalTransactionInformation? ItemOptionalFields? UserOptionalFields?) Ext?",
	"CancelRequestItemResponse": "ResponseHeader? (Problem+|(ItemId|RequestId ItemId?) UserId FiscalTransactionInformation? ItemOptionalFields? UserOptionalFields?) Ext?",
	"AcceptItemResponse":        "ResponseHeader? (Problem+|RequestId ItemId?) Ext?",
	"CheckOutItemResponse":      "ResponseHeader? (Problem+ RequiredFeeAmount? RequiredItemUseRestrictionType*|ItemId UserId (DateDue|IndeterminateLoanPeriodFlag|NonReturnableFlag) RenewalCount? ElectronicResource? FiscalTransactionInformation? ItemOptionalFields? UserOptionalFields?) Ext?",
	"CheckInItemResponse":       "ResponseHeader? (Problem+|ItemId UserId? RoutingInformation? FiscalTransactionInformation? ItemOptionalFields? UserOptionalFields?) Ext?",
	"RenewItemResponse":         "ResponseHeader? (Problem+ RequiredFeeAmount? RequiredItemUseRestrictionType*|Pending|ItemId UserId? DateDue? DateForReturn? RenewalCount? FiscalTransactionInformation? ItemOptionalFields? UserOptionalFields?) Ext?",

	"InitiationHeader":         "FromSystemId? FromSystemAuthentication? FromAgencyId FromAgencyAuthentication? OnBehalfOfAgency? ToSystemId? ToAgencyId ApplicationProfileType? Ext?",
	"ResponseHeader":           "FromSystemId? FromSystemAuthentication? FromAgencyId FromAgencyAuthentication? ToSystemId? ToAgencyId Ext?",
	"FromAgencyId":             "AgencyId Ext?",
	"ToAgencyId":               "AgencyId Ext?",
	"OnBehalfOfAgency":         "AgencyId Ext?",
	"Problem":                  "ProblemType ProblemDetail? ProblemElement? ProblemValue? Ext?",
	"UserId":                   "AgencyId? UserIdentifierType? UserIdentifierValue Ext?",
	"ItemId":                   "AgencyId? ItemIdentifierType? ItemIdentifierValue Ext?",
	"RequestId":                "AgencyId? RequestIdentifierType? RequestIdentifierValue Ext?",
	"BibliographicId":          "(BibliographicItemId|BibliographicRecordId) Ext?",
	"BibliographicItemId":      "BibliographicItemIdentifier BibliographicItemIdentifierCode? Ext?",
	"BibliographicRecordId":    "BibliographicRecordIdentifier (AgencyId|BibliographicRecordIdentifierCode) Ext?",
	"BibliographicDescription": "Author? AuthorOfComponent? BibliographicItemId? BibliographicRecordId* ComponentId? Edition? Pagination? PlaceOfPublication? PublicationDate? PublicationDateOfComponent? Publisher? SeriesTitleNumber? Title? TitleOfComponent? BibliographicLevel? SponsoringBody? ElectronicDataFormatType? Language? MediumType? Ext?",
	"ItemDescription":          "CallNumber? CopyNumber? ItemDescriptionLevel? HoldingsInformation? NumberOfPieces? Ext?",
	"ItemOptionalFields":       "BibliographicDescription? ItemUseRestrictionType* CirculationStatus? HoldQueueLength? ItemDescription? Location* PhysicalCondition? ElectronicResource? SecurityMarker? SensitizationFlag? DateDue? Ext?",
	"ItemTransaction":          "CurrentBorrower? CurrentRequester* Ext?",
	"CurrentBorrower":          "UserId Ext?",
	"CurrentRequester":         "UserId Ext?",
	"LoanedItem":               "ItemId BibliographicId* ReminderLevel? (DateDue|IndeterminateLoanPeriodFlag) Amount? Title? MediumType? Ext?",
	"RequestedItem":            "(ItemId|RequestId ItemId?) BibliographicId* RequestType RequestStatusType DatePlaced PickupDate? PickupLocation? PickupExpiryDate? ReminderLevel? HoldQueuePosition? Title? MediumType? Ext?",
	"Pending":                  "DateOfExpectedReply? Ext?",
	"UserOptionalFields":       "NameInformation? UserAddressInformation* DateOfBirth? UserLanguage* UserPrivilege* BlockOrTrap* UserId* PreviousUserId* Ext?",
	"NameInformation":          "(PersonalNameInformation|OrganizationNameInformation+) Ext?",
	"PersonalNameInformation":  "(UnstructuredPersonalUserName|StructuredPersonalUserName UnstructuredPersonalUserName?) Ext?",
	"BlockOrTrap":              "AgencyId BlockOrTrapType ValidFromDate? ValidToDate? Ext?",
	"RoutingInformation":       "RoutingInstructions Destination RequestType? UserId? NameInformation? Ext?",
	"UserPrivilege":            "AgencyId AgencyUserPrivilegeType ValidFromDate? ValidToDate? UserPrivilegeFee? UserPrivilegeStatus? UserPrivilegeDescription? Ext?",
	"UserPrivilegeStatus":      "UserPrivilegeStatusType DateOfUserPrivilegeStatus? Ext?",
}

// flags have nothing in them.
var flags = map[string]bool{
	"LoanedItemsDesired": true, "RequestedItemsDesired": true, "UserFiscalAccountDesired": true, "CurrentBorrowerDesired": true,
	"CurrentRequestersDesired": true, "IndeterminateLoanPeriodFlag": true, "NonReturnableFlag": true, "RenewalNotPermitted": true,
}

// dates are of the type xs:dateTime.
var dates = regexp.MustCompile(`^(Date(Due|ForReturn|Placed|Recalled|Available|OfExpectedReply)|Desired.*|EarliestDateNeeded|NeedBeforeDate|Pickup(Expiry)?Date|HoldPickupDate|Valid.*Date)$`)

var names = regexp.MustCompile(`[A-Za-z]+`)

// patterns has each content as a pattern for the children's names, each with a semicolon behind it.
var patterns = sync.OnceValue(func() map[string]*regexp.Regexp {
	list := map[string]*regexp.Regexp{}
	for name, c := range content {
		list[name] = regexp.MustCompile("^(?:" + strings.ReplaceAll(names.ReplaceAllString(c, "(?:$0;)"), " ", "") + ")$")
	}
	return list
})

// Check reports the first place where a message is not as the schema of NCIP 2.02 has it: the elements, their order and
// number, dates, and the namespace of elements and attributes. It knows the messages of this package, not all.
func Check(message []byte) error {
	_, err := check(message)
	return err
}

func check(message []byte) (*node, error) {
	var root node
	if err := xml.Unmarshal(message, &root); err != nil {
		return nil, fmt.Errorf("no XML: %w", err)
	}
	versioned := false
	for _, a := range root.Attrs {
		versioned = versioned || a.Name == xml.Name{Space: Namespace, Local: "version"}
	}
	switch {
	case root.XMLName != xml.Name{Space: Namespace, Local: "NCIPMessage"}:
		return nil, errors.New("the root is no NCIPMessage")
	case !versioned:
		return nil, errors.New("NCIPMessage has no version of its namespace")
	case len(root.Children) == 0:
		return nil, errors.New("NCIPMessage is empty")
	}
	for i, c := range root.Children {
		name := c.XMLName.Local
		if name != "Problem" && (i > 0 || !strings.HasSuffix(name, "Response") && !strings.HasPrefix(content[name], "InitiationHeader?") || content[name] == "") {
			return nil, fmt.Errorf("%s is no service that is known here", name)
		}
		if err := c.check(name); err != nil {
			return nil, err
		}
	}
	return &root, nil
}

func (n *node) check(path string) error {
	name := n.XMLName.Local
	if n.XMLName.Space != Namespace {
		return fmt.Errorf("%s is not of NCIP's namespace", path)
	}
	for _, a := range n.Attrs {
		if a.Name.Space != "xmlns" && a.Name.Local != "xmlns" && (a.Name != xml.Name{Space: Namespace, Local: "Scheme"}) {
			return fmt.Errorf("%s has an attribute %s", path, a.Name.Local)
		}
	}
	var children strings.Builder
	for _, c := range n.Children {
		children.WriteString(c.XMLName.Local + ";")
	}
	want, ok := content[name]
	text := strings.TrimSpace(n.Text)
	switch {
	case name == "Ext":
		return nil
	case ok && text != "":
		return fmt.Errorf("%s has text beside its elements", path)
	case ok && !patterns()[name].MatchString(children.String()):
		return fmt.Errorf("%s has %s, want %s", path, strings.TrimSuffix(children.String(), ";"), want)
	case !ok && len(n.Children) > 0:
		return fmt.Errorf("%s is not known to have elements", path)
	case flags[name] && text != "":
		return fmt.Errorf("%s is a flag and has text", path)
	case dates.MatchString(name) && !isDate(text):
		return fmt.Errorf("%s is no date", path)
	}
	for _, c := range n.Children {
		if err := c.check(path + "/" + c.XMLName.Local); err != nil {
			return err
		}
	}
	return nil
}

func isDate(s string) bool {
	if _, err := time.Parse(time.RFC3339, s); err == nil {
		return true
	}
	_, err := time.Parse("2006-01-02T15:04:05", s)
	return err == nil
}
