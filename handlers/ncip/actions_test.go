package ncip_test

import (
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers/ncip"
	"github.com/millbridge/millbridge/handlers/ncip/nciptest"
)

func TestActions_answer_what_the_library_says(t *testing.T) {
	t.Parallel()
	const (
		user   = `{"agency":"LIBRARY","value":"2001"}`
		item   = `{"agency":"LIBRARY","type":"Barcode","value":"39001"}`
		fields = `{"title":"Emma","circulation_status":"On Loan","hold_queue_length":"0","call_number":"PR4034"}`
	)
	s, h := setup(t, nciptest.Options{})
	for _, step := range []struct{ action, args, want string }{
		{"lookup-user", `{"user":{"value":"2001"},"elements":["Name Information","Block Or Trap"]}`, `{"user":` + user + `,"name":"Ada Reader"}`},
		{"lookup-user", `{"user":{"value":"2003"}}`, `{"user":{"agency":"LIBRARY","value":"2003"},"blocks":[{"agency":"LIBRARY","type":"Block Checkout"}]}`},
		{
			"request-item", `{"user":{"value":"2001"},"items":[{"value":"39001"}],"request_id":"ill-7","pickup_location":"Desk","need_before_date":"2026-12-24T10:00:00+01:00"}`,
			`{"request":{"agency":"MB","value":"ill-7"},"item":` + item + `,"user":` + user + `,"type":"Hold","scope":"Item"}`,
		},
		{
			"lookup-user", `{"user":{"value":"2001"},"requested_items":true,"elements":[]}`,
			`{"user":` + user + `,"requested_items":[{"request":{"agency":"MB","value":"ill-7"},"item":` + item +
				`,"type":"Hold","status":"In Process","title":"Emma","placed":"2026-11-30T12:00:00Z","pickup_location":"Desk"}]}`,
		},
		{
			"check-out-item", `{"user":{"value":"2001"},"item":{"value":"39001"},"request":{"value":"ill-7"}}`,
			`{"item":` + item + `,"user":` + user + `,"date_due":"` + firstDue + `","renewals":"0"}`,
		},
		{"lookup-item", `{"item":{"value":"39001"},"borrower":true}`, `{"item":` + item + `,"borrower":` + user + `,"fields":` + fields + `}`},
		{
			"renew-item", `{"user":{"value":"2001"},"item":{"value":"39001"},"desired_date_due":"2027-01-11T12:00:00Z"}`,
			`{"item":` + item + `,"user":` + user + `,"date_due":"2027-01-11T12:00:00Z","renewals":"1"}`,
		},
		{
			"check-in-item", `{"item":{"value":"39001"},"user":{"value":"2001"},"item_elements":["Bibliographic Description"]}`,
			`{"item":` + item + `,"user":` + user + `,"fields":{"title":"Emma"}}`,
		},
		{
			"accept-item", `{"item":{"value":"ILL-9"},"user":{"value":"2001"},"request_id":"ill-9","description":{"title":"Far & Away","call_number":"X 1"},"pickup_location":"Desk"}`,
			`{"request":{"agency":"MB","value":"ill-9"},"item":{"agency":"LIBRARY","type":"Barcode","value":"ILL-9"}}`,
		},
		{
			"request-item", `{"user":{"value":"2002"},"titles":[{"record":"b2","code":"OCLC"}],"request_id":"ill-8"}`,
			`{"request":{"agency":"MB","value":"ill-8"},"user":{"agency":"LIBRARY","value":"2002"},"type":"Hold","scope":"Bibliographic Item"}`,
		},
		{
			"cancel-request-item", `{"user":{"value":"2002"},"request":{"value":"ill-8"}}`,
			`{"request":{"agency":"MB","value":"ill-8"},"user":{"agency":"LIBRARY","value":"2002"}}`,
		},
	} {
		wantJSON(t, must(t, h, job(step.action, step.args)), step.want)
	}
	check(t, s)
}

func TestActions_that_are_done_already_say_so(t *testing.T) {
	t.Parallel()
	s, h := setup(t, nciptest.Options{})
	s.Lend(nciptest.Loan{Item: "39002", User: "2001", Due: now})
	for _, step := range []struct{ action, args, done string }{
		{"request-item", `{"user":{"value":"2001"},"items":[{"value":"39001"}]}`, "LookupUser"},
		{"accept-item", `{"user":{"value":"2001"},"item":{"value":"ILL-1"}}`, "LookupUser"},
		{"renew-item", `{"user":{"value":"2001"},"item":{"value":"39002"},"date_due":"2026-11-30T12:00:00Z"}`, "LookupUser"},
		{"check-out-item", `{"user":{"value":"2001"},"item":{"value":"39001"}}`, "LookupUser"},
		{"check-in-item", `{"item":{"value":"39001"}}`, "CheckInItem"},
		{"cancel-request-item", `{"user":{"value":"2001"},"request":{"value":"none"}}`, "CancelRequestItem"},
	} {
		first, before := must(t, h, job(step.action, step.args)), len(s.Asked())
		again := must(t, h, job(step.action, step.args))
		if asked := s.Asked()[before:]; strings.Join(asked, " ") != step.done {
			t.Errorf("%s again asked for %v, want only %s", step.action, asked, step.done)
		}
		if !strings.Contains(again, `"already":true`) || strings.Contains(first, "already") && step.action != "cancel-request-item" {
			t.Errorf("%s: first %s, then %s", step.action, first, again)
		}
	}
	check(t, s)
}

// A number that comes from the key is the same for a replay, and another for another tenant.
func TestRequestID(t *testing.T) {
	t.Parallel()
	env := job("request-item", `{"user":{"value":"2001"},"items":[{"value":"39001"}]}`)
	s, h := setup(t, nciptest.Options{})
	got := must(t, h, env)
	id := ncip.RequestID(env)
	if !strings.Contains(got, `"request":{"value":"`+id+`","agency":"MB"}`) || len(id) != 27 || s.State().Requests[0].ID != id {
		t.Errorf("request id %q, reported %s", id, got)
	}
	replay := env
	replay.ID, replay.Key = "other", env.IdempotencyKey()
	if ncip.RequestID(replay) != id {
		t.Error("a replay has another number")
	}
	env.Tenant = "t"
	if ncip.RequestID(env) == id {
		t.Error("another tenant has the same number")
	}
}

// What responders of the kinds that are known write, word for word what they differ in.
func TestAnswers_of_other_kinds(t *testing.T) {
	t.Parallel()
	head := `<?xml version="1.0" encoding="UTF-8"?><NCIPMessage xmlns="http://www.niso.org/2008/ncip">`
	for _, c := range []struct{ name, action, args, answer, want string }{
		{
			"no namespace, a date without a zone", "check-out-item", `{"user":{"value":"1"},"item":{"value":"2"}}`,
			"\ufeff<NCIPMessage version='x'>\n <CheckOutItemResponse> <ItemId><ItemIdentifierValue> 2 </ItemIdentifierValue></ItemId><DateDue>2032-12-30T13:54:19</DateDue></CheckOutItemResponse></NCIPMessage>",
			`{"item":{"value":"2"},"date_due":"2032-12-30T13:54:19"}`,
		},
		{
			"a value inside a value, foreign elements", "accept-item", `{"item":{"value":"2"}}`,
			head + `<AcceptItemResponse><x:RequestId xmlns:x="urn:x"><RequestIdentifierValue>no</RequestIdentifierValue></x:RequestId><RequestId><AgencyId><Scheme>s</Scheme><Value>A</Value></AgencyId>` +
				`<RequestIdentifierValue>7</RequestIdentifierValue></RequestId><Surprise><Deep/></Surprise></AcceptItemResponse></NCIPMessage>`,
			`{"request":{"value":"7","agency":"A"}}`,
		},
		{
			"locations by level, a number of its own", "request-item", `{"user":{"value":"1"},"titles":[{"item":"978","code":"ISBN"}],"request_id":"mine"}`,
			head + `<RequestItemResponse><RequestId><RequestIdentifierValue>theirs</RequestIdentifierValue></RequestId><UserId><UserIdentifierValue>1</UserIdentifierValue></UserId>` +
				`<RequestType>Page</RequestType><RequestScopeType>Item</RequestScopeType><ItemOptionalFields><ItemDescription><CallNumber>Q1</CallNumber></ItemDescription><Location><LocationType>Item</LocationType>` +
				`<LocationName><LocationNameInstance><LocationNameLevel>4</LocationNameLevel><LocationNameValue>Main</LocationNameValue></LocationNameInstance></LocationName></Location></ItemOptionalFields></RequestItemResponse></NCIPMessage>`,
			`{"request":{"value":"theirs"},"user":{"value":"1"},"type":"Page","scope":"Item","fields":{"call_number":"Q1","locations":[{"type":"Item","names":[{"level":"4","value":"Main"}]}]}}`,
		},
		{
			"a renewal that is pending", "renew-item", `{"user":{"value":"1"},"item":{"value":"2"},"date_due":"2026-12-01T00:00:00"}`,
			head + `<RenewItemResponse><Pending><DateOfExpectedReply>2026-12-02T00:00:00Z</DateOfExpectedReply></Pending></RenewItemResponse></NCIPMessage>`,
			`{"pending":true,"reply_by":"2026-12-02T00:00:00Z"}`,
		},
		{
			"a patron in full", "lookup-user", `{"user":{"value":"1"},"fiscal_account":true}`,
			head + `<LookupUserResponse><UserId><UserIdentifierValue>1</UserIdentifierValue></UserId><UserFiscalAccount><AccountBalance><CurrencyCode>EUR</CurrencyCode><MonetaryValue>250</MonetaryValue></AccountBalance></UserFiscalAccount>` +
				`<UserOptionalFields><NameInformation><PersonalNameInformation><StructuredPersonalUserName><GivenName>Ada</GivenName><Surname>Reader</Surname></StructuredPersonalUserName></PersonalNameInformation></NameInformation>` +
				`<UserAddressInformation><UserAddressRoleType>Home</UserAddressRoleType><PhysicalAddress><StructuredAddress><Line1>Mill Lane 1</Line1><Locality>Ely</Locality><PostalCode>CB7</PostalCode></StructuredAddress><PhysicalAddressType>Postal Address</PhysicalAddressType></PhysicalAddress></UserAddressInformation>` +
				`<UserAddressInformation><UserAddressRoleType>OTH</UserAddressRoleType><ElectronicAddress><ElectronicAddressType>mailto</ElectronicAddressType><ElectronicAddressData>ada@example.org</ElectronicAddressData></ElectronicAddress></UserAddressInformation>` +
				`<UserPrivilege><AgencyId>L</AgencyId><AgencyUserPrivilegeType>STATUS</AgencyUserPrivilegeType><ValidToDate>2027-01-01T00:00:00Z</ValidToDate><UserPrivilegeStatus><UserPrivilegeStatusType>OK</UserPrivilegeStatusType></UserPrivilegeStatus><UserPrivilegeDescription>User Status</UserPrivilegeDescription></UserPrivilege>` +
				`<UserId><UserIdentifierType>uuid</UserIdentifierType><UserIdentifierValue>u-1</UserIdentifierValue></UserId></UserOptionalFields></LookupUserResponse></NCIPMessage>`,
			`{"user":{"value":"1"},"balance":{"currency":"EUR","value":"250"},"given_name":"Ada","surname":"Reader","ids":[{"value":"u-1","type":"uuid"}],
			"addresses":[{"role":"Home","type":"Postal Address","lines":["Mill Lane 1"],"locality":"Ely","postal_code":"CB7"},{"role":"OTH","type":"mailto","electronic":"ada@example.org"}],
			"privileges":[{"agency":"L","type":"STATUS","status":"OK","description":"User Status","valid_to":"2027-01-01T00:00:00Z"}]}`,
		},
	} {
		h := newHandler(t, answering(t, 200, c.answer, "Content-Type", "text/html", lookUps("none")))
		got, err := handle(t, h, job(c.action, c.args))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		wantJSON(t, got, c.want)
	}
}

func TestArgs_are_checked_before_anything_is_sent(t *testing.T) {
	t.Parallel()
	s, h := setup(t, nciptest.Options{})
	for _, c := range []struct{ action, args, want string }{
		{"lookup-user", `{}`, `field "user.value": is missing`},
		{"lookup-user", `{"user":{"value":"a\u0001"}}`, "UserIdentifierValue has a character that XML cannot carry"},
		{"lookup-item", `{}`, `"item or request"`},
		{"lookup-item", `{"item":{"value":"1"},"request":{"value":"1"}}`, `"item or request"`},
		{"lookup-item", `{"item":{}}`, `"item.value"`},
		{"lookup-item", `{"request":{}}`, `"request.value"`},
		{"request-item", `{"items":[{"value":"1"}]}`, `"user.value"`},
		{"request-item", `{"user":{"value":"1"}}`, `"items or titles"`},
		{"request-item", `{"user":{"value":"1"},"items":[{"value":"1"},{}]}`, `"items[1].value"`},
		{"request-item", `{"user":{"value":"1"},"titles":[{}]}`, `"titles[0]": wants either`},
		{"request-item", `{"user":{"value":"1"},"titles":[{"record":"1"}]}`, "either a code or an agency"},
		{"request-item", `{"user":{"value":"1"},"titles":[{"item":"1","agency":"x"}]}`, "has no agency"},
		{"request-item", `{"user":{"value":"1"},"items":[{"value":"1"}],"need_before_date":"soon"}`, "RFC 3339"},
		{"cancel-request-item", `{"request":{"value":"1"}}`, `"user.value"`},
		{"cancel-request-item", `{"user":{"value":"1"}}`, `"request or item"`},
		{"cancel-request-item", `{"user":{"value":"1"},"request":{}}`, `"request.value"`},
		{"cancel-request-item", `{"user":{"value":"1"},"item":{}}`, `"item.value"`},
		{"accept-item", `{}`, `"item.value"`},
		{"accept-item", `{"item":{"value":"1"},"user":{}}`, `"user.value"`},
		{"accept-item", `{"item":{"value":"1"},"indefinite_loan":true,"non_returnable":true}`, "only one of them"},
		{"check-out-item", `{"item":{"value":"1"}}`, `"user.value"`},
		{"check-out-item", `{"user":{"value":"1"}}`, `"item.value"`},
		{"check-out-item", `{"user":{"value":"1"},"item":{"value":"1"},"request":{}}`, `"request.value"`},
		{"check-in-item", `{}`, `"item.value"`},
		{"check-in-item", `{"item":{"value":"1"},"user":{}}`, `"user.value"`},
		{"renew-item", `{"item":{"value":"1"},"date_due":"2026-12-01T00:00:00Z"}`, `"user.value"`},
		{"renew-item", `{"user":{"value":"1"},"date_due":"2026-12-01T00:00:00Z"}`, `"item.value"`},
		{"renew-item", `{"user":{"value":"1"},"item":{"value":"1"}}`, `"date_due or desired_date_due"`},
		{"renew-item", `{"user":{"value":"1"},"item":{"value":"1"},"date_due":"tomorrow"}`, "is no date such as"},
		{"renew-item", `{"user":{"value":"1"},"item":{"value":"1"},"until":"x"}`, "is not known"},
		{"lend", `{}`, "has no action"},
	} {
		_, err := handle(t, h, job(c.action, c.args))
		if err == nil || !strings.Contains(err.Error(), c.want) || !permanent(err) {
			t.Errorf("%s %s: error %v, want %q", c.action, c.args, err, c.want)
		}
	}
	if asked := s.Asked(); len(asked) > 0 {
		t.Errorf("sent %v", asked)
	}
}
