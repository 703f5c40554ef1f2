package schema_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/millbridge/millbridge/schema"
	"pgregory.net/rapid"
)

// Generators of what a caller may give. Each makes only what Validate accepts, up to the limits.

var (
	genToken = rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,20}`)
	genID    = rapid.OneOf(rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`), rapid.Map(genUUID, schema.UUID.String))
	genName  = rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(genToken, 1, 4).Draw(t, "tokens"), ".")
	})
	// genText is any valid UTF-8 without NUL, blanks and line breaks at the ends included.
	genText = rapid.Custom(func(t *rapid.T) string {
		s := rapid.OneOf(rapid.StringN(0, 60, -1), rapid.SampledFrom([]string{
			" ", "  x  ", "a b", "l1\nl2", "\r\n", "%41", "100%", `"quoted"`, "Zürich", "ключ", "😀", "\u00a0", "\u0085x\u0085", "\t", "a:b", "..",
		})).Draw(t, "text")
		return strings.ReplaceAll(s, "\x00", "")
	})
	// genBytes is any bytes, as metadata values and payloads may have.
	genBytes = rapid.OneOf(
		genText,
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 60), func(b []byte) string { return string(b) }),
		rapid.SampledFrom([]string{"", "\x00", "\xff", "a\x00b", "\x7f", "\xed\xa0\x80", " \t", "v\r\nNats-Rollup: all"}),
	)
	genMetadataKey = rapid.StringMatching("[A-Za-z0-9!#$%&'*+.^_`|~-]{1,40}").Filter(func(k string) bool {
		low := strings.ToLower(k)
		for _, p := range []string{"nats-", "mb-", "ce-"} {
			if strings.HasPrefix(low, p) {
				return false
			}
		}
		return low != "status" && low != "description" && low != "traceparent" && low != "tracestate"
	})
	genTime = rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "zero") {
			return time.Time{}
		}
		return time.Unix(rapid.Int64Range(0, 9_000_000_000).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).UTC()
	})
	genSeq  = rapid.Int64()
	genUUID = rapid.Custom(func(t *rapid.T) schema.UUID {
		return schema.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
	})
)

var genEnvelope = rapid.Custom(func(t *rapid.T) schema.Envelope {
	e := schema.Envelope{
		ID:          genID.Draw(t, "id"),
		Name:        genName.Draw(t, "name"),
		Key:         genText.Draw(t, "key"),
		OrderingKey: genText.Draw(t, "ordering key"),
		Tenant:      genText.Draw(t, "tenant"),
		Actor:       genText.Draw(t, "actor"),
		RequestID:   genText.Draw(t, "request id"),
		ContentType: rapid.SampledFrom([]string{"", "application/json", "text/plain; charset=utf-8", `a/b; q="%20"`}).Draw(t, "content type"),
		TraceParent: rapid.SampledFrom([]string{"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}).Draw(t, "traceparent"),
		TraceState:  rapid.SampledFrom([]string{"", "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"}).Draw(t, "tracestate"),
		Metadata:    rapid.MapOfN(genMetadataKey, genBytes, 0, 8).Draw(t, "metadata"),
		Payload:     []byte(genBytes.Draw(t, "payload")),
		Time:        genTime.Draw(t, "time"),
	}
	if rapid.Bool().Draw(t, "has passed bridges") {
		e.Via = rapid.SliceOfN(genToken, 1, schema.MaxVia).Draw(t, "via")
	}
	if rapid.Bool().Draw(t, "is job") {
		e.Kind, e.Target = schema.KindJob, genToken.Draw(t, "target")
		if rapid.Bool().Draw(t, "is to be reported") {
			e.ReplyTo = &schema.ReplyTo{Target: genToken.Draw(t, "reply target"), Action: genName.Draw(t, "reply action"), Ref: genText.Draw(t, "ref")}
		}
	} else {
		e.Kind, e.Visibility = schema.KindEvent, rapid.SampledFrom([]schema.Visibility{schema.Internal, schema.Public}).Draw(t, "visibility")
	}
	if rapid.Bool().Draw(t, "is replay") {
		e.Source = genText.Draw(t, "source")
		e.Replay = &schema.Replay{
			Handler: genToken.Draw(t, "handler"),
			Of:      genID.Draw(t, "of"),
			Number:  rapid.IntRange(1, schema.MaxReplay).Draw(t, "number"),
		}
	}
	return e
})

// A generator makes up its name when it is first asked for it, without a lock: that must be before
// tests that run at the same time do.
var _ = func() (names []string) {
	for _, g := range []fmt.Stringer{
		genToken, genID, genName, genText, genBytes, genMetadataKey, genTime, genSeq, genUUID, genEnvelope, genCursor,
	} {
		names = append(names, g.String())
	}
	return names
}()
