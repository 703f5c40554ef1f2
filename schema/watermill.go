package schema

import "strings"

// WatermillHeader reads a header block the way Watermill's NATS wire format does: the message's id and one metadata
// entry for each header that is not the broker's. It takes what there is, from any publisher: names in any case, the
// first of several values, an empty id when there is none. Values that were encoded for the wire are decoded.
func WatermillHeader(header map[string][]string) (id string, metadata map[string]string) {
	metadata = make(map[string]string, len(header))
	encoded, idName, encodedName := "", "", ""
	for k, vs := range header {
		low := strings.ToLower(k)
		if len(vs) == 0 || isBroker(low) {
			continue
		}
		switch low {
		case HeaderID:
			if prefer(k, idName, HeaderID) {
				id, idName = vs[0], k
			}
			continue
		case HeaderEncoded:
			if prefer(k, encodedName, HeaderEncoded) {
				encoded, encodedName = vs[0], k
			}
		}
		metadata[k] = vs[0]
	}
	for k := range strings.SplitSeq(encoded, " ") {
		if v, ok := metadata[k]; ok && !isReserved(k) {
			metadata[k] = percentDecode(v)
		}
	}
	return id, metadata
}

// prefer reports whether a header named name counts rather than the one found so far, for maps have no order.
func prefer(name, found, ours string) bool {
	return found == "" || name == ours || found != ours && name < found
}
