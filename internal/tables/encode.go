package tables

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// version is the value of the member "table". A reader refuses any other.
const version = 1

// Encode writes the table as JSON, with a line for each member and each request, and always the
// same for the same table:
//
//	{"table":1,"revision":1841,"nonce":"…",
//	"members":{
//	"7":{"name":"pod-7","key":"…","id":"…","term":"…","token":12,"ttl":15,"metadata":{"url":"…"}}},
//	"held":[
//	[7,55,1732,"tenant-42"],
//	[7,56,1790,["gpu",1,8],["schema","s"]]],
//	"waiting":[
//	[9,4,"tenant-42"]]}
//
// A request is member, number, token if it is held, and claims. A claim is a name, a name with "s"
// if it is shared, or a name with slots and capacity.
func (t *Table) Encode() []byte {
	b := make([]byte, 0, 256*(1+len(t.members))+64*len(t.requests))
	b = appendNumber(append(b, `{"table":`...), version)
	b = appendNumber(append(b, `,"revision":`...), t.Revision)
	b = appendText(append(b, `,"nonce":`...), t.Nonce)
	b = append(b, ",\n\"members\":{"...)
	between := "\n"
	for n, m := range t.Members() {
		b = appendNumber(append(append(b, between...), '"'), n)
		b = appendMember(append(b, `":`...), m)
		between = ",\n"
	}
	b = appendRequests(append(b, "},\n\"held\":["...), t.Held())
	b = appendRequests(append(b, "],\n\"waiting\":["...), t.Waiting())
	return append(b, "]}"...)
}

func appendMember(b []byte, m Member) []byte {
	b = appendText(append(b, `{"name":`...), m.Name)
	b = appendText(append(b, `,"key":`...), m.Key)
	b = appendText(append(b, `,"id":`...), m.ObjectID)
	b = appendText(append(b, `,"term":`...), m.TermID)
	b = appendNumber(append(b, `,"token":`...), m.Token)
	b = strconv.AppendFloat(append(b, `,"ttl":`...), m.TTL.Seconds(), 'f', -1, 64)
	if m.Metadata != nil {
		b = append(b, `,"metadata":{`...)
		for i, name := range slices.Sorted(maps.Keys(m.Metadata)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendText(append(appendText(b, name), ':'), m.Metadata[name])
		}
		b = append(b, '}')
	}
	return append(b, '}')
}

func appendRequests(b []byte, requests iter.Seq[Request]) []byte {
	between := "\n["
	for r := range requests {
		b = append(b, between...)
		between = ",\n["
		b = appendNumber(append(appendNumber(b, r.Member), ','), r.Number)
		if r.Token != 0 {
			b = appendNumber(append(b, ','), r.Token)
		}
		for _, c := range r.Claims {
			switch {
			case c.Of > 0:
				b = appendText(append(b, ",["...), c.Name)
				b = appendNumber(append(b, ','), uint64(c.Slots))
				b = append(appendNumber(append(b, ','), uint64(c.Of)), ']')
			case c.Shared:
				b = append(appendText(append(b, ",["...), c.Name), `,"s"]`...)
			default:
				b = appendText(append(b, ','), c.Name)
			}
		}
		b = append(b, ']')
	}
	return b
}

func appendNumber(b []byte, n uint64) []byte { return strconv.AppendUint(b, n, 10) }

// appendText escapes what JSON wants escaped, and what a terminal or an editor may take for a
// control or for the end of a line.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
