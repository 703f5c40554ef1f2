package ncip

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

// Whatever a responder answers, it is either data within limits or an error that says whether to try again.
func FuzzAnswer(f *testing.F) {
	const head = `<ns1:NCIPMessage xmlns:ns1="http://www.niso.org/2008/ncip">`
	f.Add("LookupUser", []byte(head+`<ns1:LookupUserResponse><ns1:UserId><ns1:UserIdentifierValue>1</ns1:UserIdentifierValue></ns1:UserId></ns1:LookupUserResponse></ns1:NCIPMessage>`))
	f.Add("RenewItem", []byte(head+`<ns1:RenewItemResponse><ns1:Pending/></ns1:RenewItemResponse></ns1:NCIPMessage>`))
	f.Add("CheckOutItem", []byte(`<NCIPMessage><CheckOutItemResponse><Problem><ProblemType>x</ProblemType></Problem></CheckOutItemResponse></NCIPMessage>`))
	f.Add("LookupItem", []byte(`<!DOCTYPE a><NCIPMessage>&a;`))
	f.Add("AcceptItem", []byte("\xef\xbb\xbf<?xml version='1.0' encoding='latin1'?><NCIPMessage/>"))
	f.Fuzz(func(t *testing.T, service string, body []byte) {
		target := &target{secrets: []string{"s3cr3t"}}
		n, err := target.read(http.Header{}, body, service)
		if err != nil {
			var problems *ProblemError
			if schema.KindOf(err) != schema.Permanent && !errors.As(err, new(strangeError)) &&
				!(errors.As(err, &problems) && strings.EqualFold(problems.Problems[0].Type, TemporaryFailure)) {
				t.Fatalf("error %v is not permanent", err)
			}
			if strings.Contains(err.Error(), "s3cr3t") && !strings.Contains(service, "s3cr3t") {
				t.Fatalf("error %q", err)
			}
			return
		}
		depth, count := measure(n)
		if depth > maxDepth || count > maxNodes {
			t.Fatalf("depth %d, %d elements", depth, count)
		}
		readUser(n)
		readItem(n)
		readLoan(n)
		for _, c := range n.children {
			readRequested(c)
		}
	})
}

func measure(n *node) (depth, count int) {
	for _, c := range n.children {
		d, k := measure(c)
		depth, count = max(depth, d), count+k
	}
	return depth + 1, count + 1
}

// Dates without a zone are compared with their like only.
func FuzzDate(f *testing.F) {
	f.Add("2026-11-30T12:00:00Z", "2026-11-30T12:00:00")
	f.Add("2026-11-30T12:00:00.5+01:00", "x")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := Date(a), Date(b)
		if x.after(y) && (y.after(x) || strings.HasSuffix(a, "Z") && !strings.ContainsAny(b[min(len(b), 10):], "Zz+-")) {
			t.Fatalf("%q after %q", a, b)
		}
	})
}
