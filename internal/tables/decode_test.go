package tables

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/stretchr/testify/require"
)

// sample has everything that a table can have.
const sample = `{"table":1,"revision":1841,"nonce":"n",
"members":{
"7":{"name":"pod-7","key":"t/members/pod-7","id":"o7","term":"t7","token":12,"ttl":15,"metadata":{"url":"","zone":"b"}},
"9":{"name":"pod-9","key":"t/members/pod-9","id":"o9","term":"t9","token":1,"ttl":0.25}},
"held":[
[7,55,1732,"tenant-42"],
[7,56,1790,["gpu",1,8],["schema","s"]],
[7,57,1790,"shard-11"],
[9,3,1841,["gpu",2,8],["schema","s"]]],
"waiting":[
[9,4,"tenant-42",["users","s"]],
[9,5,["gpu",8,8]]]}`

func TestTheEncoding(t *testing.T) {
	tab, err := Decode([]byte(sample))
	require.NoError(t, err)
	require.Equal(t, sample, string(tab.Encode()))
	require.Equal(t, uint64(1841), tab.Revision)
	require.Equal(t, "n", tab.Nonce)

	m, ok := tab.Member(7)
	require.True(t, ok)
	require.Equal(t, Member{
		Term:     Term{Key: "t/members/pod-7", ObjectID: "o7", TermID: "t7", Token: 12},
		Name:     "pod-7",
		TTL:      15 * time.Second,
		Metadata: map[string]string{"url": "", "zone": "b"},
	}, m)
	m, _ = tab.Member(9)
	require.Equal(t, 250*time.Millisecond, m.TTL)
	require.Equal(t, []Request{
		{
			ID:     ID{Member: 9, Number: 3},
			Claims: []Claim{{Name: "gpu", Slots: 2, Of: 8}, {Name: "schema", Shared: true}},
			Token:  1841,
		},
		{ID: ID{Member: 9, Number: 4}, Claims: []Claim{{Name: "tenant-42"}, {Name: "users", Shared: true}}},
		{ID: ID{Member: 9, Number: 5}, Claims: []Claim{{Name: "gpu", Slots: 8, Of: 8}}},
	}, tab.Requests(9))

	empty := New()
	require.Equal(t, "{\"table\":1,\"revision\":0,\"nonce\":\"\",\n\"members\":{},\n\"held\":[],\n\"waiting\":[]}",
		string(empty.Encode()))
	again, err := Decode(empty.Encode())
	require.NoError(t, err)
	require.Equal(t, empty, again)
}

// What is too large, or could not be read again, is told before it is written.
func TestTablesThatAreNotWritten(t *testing.T) {
	tab, err := Decode([]byte(sample))
	require.NoError(t, err)
	// Sealed, the second request in line gets its lock, and one is left to be granted later.
	next := func() *Table { c := tab.Clone(); c.Revision--; return c }
	sealed, over, err := next().Seal(tab.Nonce, 0, leasehold.MaxObjectSize)
	require.NoError(t, err)
	require.Negative(t, over)
	_, _, waiting := tab.Counts()
	size := len(sealed) + waiting*(len(",")+len(fmt.Sprint(tab.Revision))+2)
	require.Positive(t, waiting)

	sealed, over, err = next().Seal(tab.Nonce, 0, size)
	require.NoError(t, err)
	require.Zero(t, over)
	require.Equal(t, sample, string(sealed))

	sealed, over, err = next().Seal(tab.Nonce, 0, size-3)
	require.ErrorIs(t, err, ErrFull)
	require.ErrorContains(t, err, fmt.Sprintf("%d bytes, over the limit of %d", size, size-3))
	require.Equal(t, 3, over)
	require.Equal(t, sample, string(sealed), "the body comes with it")

	highest := tab.Clone()
	body, _, err := highest.Seal("n", leasehold.MaxToken-1, 1<<20)
	require.NoError(t, err)
	require.Equal(t, leasehold.MaxToken, highest.Revision)
	_, err = Decode(body)
	require.NoError(t, err)
	_, _, err = highest.Seal("n", 0, 1<<20)
	require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
	require.ErrorContains(t, err, "2^53-1")
}

// TestEditsByHand are what a tool or a person may make of a table, without another meaning.
func TestEditsByHand(t *testing.T) {
	var anything map[string]any
	require.NoError(t, json.Unmarshal([]byte(sample), &anything))
	sorted, err := json.MarshalIndent(anything, "\t", "  ") // held and members before table and revision
	require.NoError(t, err)
	for _, body := range []string{
		string(sorted), " \r\n\t" + strings.ReplaceAll(sample, ",", " ,\t\n") + "\n",
		strings.ReplaceAll(sample, `"tenant-42",["users","s"]`, `["users","s"],"\u0074enant-42"`),
	} {
		tab, err := Decode([]byte(body))
		require.NoError(t, err, body)
		require.Equal(t, sample, string(tab.Encode()))
	}
	tab, err := Decode([]byte(strings.Replace(sample, "[7,55,1732,\"tenant-42\"],\n", "", 1)))
	require.NoError(t, err, "somebody waits for what nobody holds")
	tab.Finish("n", 0)
	r, _ := tab.Request(ID{Member: 9, Number: 4})
	require.Equal(t, uint64(1842), r.Token)
}

func TestTextsAreEscaped(t *testing.T) {
	for _, name := range []string{
		`quote " backslash \ slash / <&>`, "日本語 ü €", "\u2028 \u2029", "😀", "\U0010ffff", strings.Repeat("x", 512),
		`\u0041`, `\"`, `\\`,
	} {
		tab := New()
		m := member(0)
		m.Name, m.TermID, m.Metadata = name+"\n\x00\x7f\u0085", name, map[string]string{name: name, "": "\t"}
		n := tab.Join(m)
		require.NoError(t, tab.Ask(ID{Member: n}, []Claim{{Name: name}}))
		require.NoError(t, tab.Ask(ID{Member: n, Number: 1}, []Claim{{Name: name}}))
		tab.Finish(name, 0)

		body := tab.Encode()
		require.True(t, json.Valid(body), "%s", body)
		require.NotContains(t, strings.ReplaceAll(string(body), "\n", ""), "\u2028")
		again, err := Decode(body)
		require.NoError(t, err, "%s", body)
		require.Equal(t, told(tab), told(again))
	}
	tab := New()
	tab.Join(Member{Term: Term{Key: "k", ObjectID: "o", TermID: "t", Token: 1}, Name: "bad \xff", TTL: time.Second})
	require.True(t, json.Valid(tab.Encode()), "what is not UTF-8 is replaced")
}

func TestTTLsAreExact(t *testing.T) {
	for _, ttl := range []time.Duration{
		1, time.Millisecond, 1001 * time.Millisecond, 15*time.Second + 1, 29 * time.Hour / 7, maxTTL,
	} {
		tab := New()
		tab.Join(Member{Term: member(0).Term, TTL: ttl})
		again, err := Decode(tab.Encode())
		require.NoError(t, err)
		require.Equal(t, told(tab), told(again))
	}
}

// told is all that a table tells.
func told(t *Table) []any {
	return []any{t.Revision, t.Nonce, maps.Collect(t.Members()), slices.Collect(t.Held()), slices.Collect(t.Waiting())}
}

func TestDamagedTables(t *testing.T) {
	const member9 = `"9":{"name":"pod-9"`
	for _, c := range []struct{ name, old, new, want string }{
		{"nothing", sample, "", "none at all: it is empty"},
		{"null", sample, "null", "none at all: 4 bytes of text"},
		{"a list", sample, "[]", "none at all: "},
		{"an empty object", sample, "{}", "none at all: 2 bytes of text"},
		{"a record", sample, `{"expires_at":0,"token":7}`, "it is a lock of package leasehold, not a table"},
		{"not UTF-8", "pod-7", "pod-\xff", "not UTF-8"},
		{"a NUL", "pod-7", "pod-\x00", "invalid character"},
		{"a text over a line", "pod-7", "pod\n7", "invalid character"},
		{"a bad escape", "pod-7", `pod-\x41`, "invalid character"},
		{"half an escape", "pod-7", `pod-\u00`, "invalid character"},
		{"two tables", sample, sample + sample, "more than a table"},
		{"a NUL at the end", sample, sample + "\x00", "more than a table"},
		{"a comma too many", `["users","s"]],`, `["users","s"],],`, "no text"},
		{"a comma too many in members", `"ttl":0.25}},`, `"ttl":0.25},},`, "no text"},
		{"a comma too few in members", `"o9","term"`, `"o9" "term"`, `no ,`},
		{"a comma too few", `[7,55,1732,"tenant-42"],`, `[7,55,1732,"tenant-42"]`, `no ,`},
		{"a later version", `"table":1`, `"table":2`, "version 2: only a later release can read it"},
		{"a later version of another shape", `"table":1`, `"table":2,"leases":[{}]`, "version 2: only a later release"},
		{"version 0", `"table":1`, `"table":0`, "not an integer between 1 and 1"},
		{"version as a text", `"table":1`, `"table":"1"`, "not an integer"},
		{"no version", `"table":1,`, "", `the member "table" of a table is missing`},
		{"no revision", `"revision":1841,`, "", `"revision" of a table is missing`},
		{"no nonce", `,"nonce":"n"`, "", `"nonce" of a table is missing`},
		{
			"no holders",
			sample[strings.Index(sample, `"held"`):strings.Index(sample, `"waiting"`)],
			"",
			`"held" of a table is missing`,
		},
		{"nobody waits", sample[strings.Index(sample, `,`+"\n"+`"waiting"`):], "}", `"waiting" of a table is missing`},
		{"an unknown member", `"nonce"`, `"seal":1,"nonce"`, `no member "seal"`},
		{"another case", `"nonce"`, `"Nonce"`, `no member "Nonce"`},
		{"a member twice", `"nonce":"n"`, `"nonce":"n","nonce":"m"`, `"nonce" is there twice`},
		{"a member twice, escaped", `"nonce":"n"`, `"nonce":"n","\u006eonce":"m"`, `"nonce" is there twice`},
		{"negative revision", `"revision":1841`, `"revision":-1841`, `"-1841" is not an integer`},
		{"revision over 2^53-1", `"revision":1841`, `"revision":9007199254740992`, "between 0 and 9007199254740991"},
		{"revision over 2^64", `"revision":1841`, `"revision":18446744073709553457`, "not an integer"},
		{"revision with a fraction", `"revision":1841`, `"revision":1841.5`, "not an integer"},
		{"revision with an exponent", `"revision":1841`, `"revision":1841e0`, "not an integer"},
		{"revision with a zero in front", `"revision":1841`, `"revision":01841`, "not an integer"},
		{"revision with a sign", `"revision":1841`, `"revision":+1841`, "not an integer"},
		{"revision null", `"revision":1841`, `"revision":null`, "not an integer"},
		{"nonce a number", `"nonce":"n"`, `"nonce":7`, "no text"},
		{"nonce null", `"nonce":"n"`, `"nonce":null`, "no text"},

		{"members a list", `"members":{`, `"members":[`, `no {`},
		{"member 0", `"9":{`, `"0":{`, "not an integer between 1"},
		{"member 09", `"9":{`, `"09":{`, "not an integer"},
		{"a member with a name for a number", `"9":{`, `"x":{`, "not an integer"},
		{"a member with a number over 2^53-1", `"9":{`, `"9007199254740992":{`, "not an integer"},
		{"two members of one number", `"9":{`, `"7":{`, `"7" is there twice`},
		{
			"two members of one term",
			`pod-9","id":"o9","term":"t9","token":1,`,
			`pod-7","id":"o7","term":"t7","token":12,`,
			"have one term",
		},
		{"a member with more", member9, `"9":{"seal":1,"name":"pod-9"`, `a member has no member "seal"`},
		{"a member without a name", member9 + ",", `"9":{`, `"name" of a member is missing`},
		{"a member without a key", `"key":"t/members/pod-9",`, "", "is missing"},
		{"a member without an id", `"id":"o9",`, "", "is missing"},
		{"a member without a term", `"term":"t9",`, "", "is missing"},
		{"a member without a token", `"token":1,`, "", "is missing"},
		{"a member without a ttl", `,"ttl":0.25`, "", "is missing"},
		{"an empty key", `"t/members/pod-9"`, `""`, `is empty`},
		{"an empty id", `"id":"o9"`, `"id":""`, "empty"},
		{"an empty term", `"term":"t9"`, `"term":""`, "empty"},
		{"token 0 of a member", `"token":1,`, `"token":0,`, "not an integer between 1"},
		{"ttl 0", `"ttl":15`, `"ttl":0`, "a TTL of 0"},
		{"ttl negative", `"ttl":15`, `"ttl":-15`, "a TTL of -15"},
		{"ttl of two centuries", `"ttl":15`, `"ttl":6307200000`, "a TTL of"},
		{"ttl that rounds to nothing", `"ttl":15`, `"ttl":1e-400`, "a TTL of 0"},
		{"ttl infinite", `"ttl":15`, `"ttl":1e400`, "1e400"},
		{"ttl a text", `"ttl":15`, `"ttl":"15"`, "unexpected end"},
		{"ttl not JSON", `"ttl":15`, `"ttl":.5`, "invalid character"},
		{"ttl null", `"ttl":15`, `"ttl":null`, "unexpected end"},
		{"metadata a text", `"metadata":{`, `"metadata":"","x":{`, `no {`},
		{"metadata null", `"metadata":{`, `"metadata":null,"x":{`, `no {`},
		{"metadata with a number", `"zone":"b"`, `"zone":5`, "no text"},
		{"metadata twice", `"zone":"b"`, `"url":"b"`, `"url" is there twice`},

		{"held an object", `"held":[`, `"held":{"a":[`, `no [`},
		{"held null", `"held":[`, `"held":null,"x":[`, `no [`},
		{"a holder that is no member", `[7,55,1732`, `[8,55,1732`, "no such member in the table: 8"},
		{"a request that holds twice", `[7,55,1732`, `[7,56,1732`, "in the table already"},
		{"a request that holds and waits", `[9,4,"ten`, `[9,3,"ten`, "in the table already"},
		{"a request that waits twice", `[9,5,`, `[9,4,`, "in the table already"},
		{"token 0", `[7,55,1732`, `[7,55,0`, "not an integer between 1"},
		{"a token above the revision", `[7,55,1732`, `[7,55,1842`, "the token 1842 is above the revision 1841"},
		{"no token", `[7,55,1732,`, `[7,55,`, "not an integer"},
		{"a token that waits", `[9,4,"ten`, `[9,4,1841,"ten`, "no text"},
		{"no number", `[7,55,1732,`, `[7,`, "not an integer"},
		{"a negative number", `[7,55,1732,`, `[7,-55,1732,`, "not an integer"},
		{"a number over 2^53-1", `[7,55,1732,`, `[7,9007199254740992,1732,`, "not an integer"},
		{"a mark", `[7,57`, `["a",7,57`, "not an integer"},
		{"an empty row", `[7,55,1732,"tenant-42"]`, `[]`, "not an integer"},
		{"no claims", `[7,55,1732,"tenant-42"]`, `[7,55,1732]`, "a request without a claim"},
		{"an empty name", `1732,"tenant-42"`, `1732,""`, "the name is empty"},
		{
			"a long name",
			`1732,"tenant-42"`,
			`1732,"` + strings.Repeat("x", 513) + `"`,
			"513 bytes exceeds the limit of 512",
		},
		{"a name with a line break", `1732,"tenant-42"`, `1732,"tenant\n42"`, "control character"},
		{"a name twice in one request", `1732,"tenant-42"`, `1732,"tenant-42",["tenant-42","s"]`, "claimed twice"},
		{"a claim null", `1732,"tenant-42"`, `1732,null`, "no text"},
		{"a claim without a kind", `["users","s"]`, `["users"]`, `no ,`},
		{"a claim of another kind", `["users","s"]`, `["users","x"]`, "not an integer"},
		{"0 slots", `["gpu",1,8]`, `["gpu",0,8]`, "not an integer between 1"},
		{"more slots than there are", `["gpu",1,8]`, `["gpu",9,8]`, "9 slots are not between 1 and the capacity 8"},
		{"no capacity", `["gpu",1,8]`, `["gpu",1]`, `no ,`},
		{"a capacity over the limit", `["gpu",1,8]`, `["gpu",1,1000001]`, "between 1 and 1000000"},
		{"slots of a lock", `["users","s"]`, `["schema",1,2]`, "a lock is no semaphore"},
		{"a lock with slots", `["users","s"]`, `"gpu"`, "a lock is no semaphore"},
		{
			"more slots held than there are",
			`["gpu",1,8]`,
			`["gpu",7,8]`,
			`"gpu" is held by requests that exclude one another`,
		},
		{
			"a reader beside a writer",
			`8],["schema","s"]`,
			`8],"schema"`,
			`"schema" is held by requests that exclude one another`,
		},
		{"two writers", `"shard-11"`, `"tenant-42"`, `"tenant-42" is held by requests that exclude one another`},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Contains(t, sample, c.old)
			_, err := Decode([]byte(strings.Replace(sample, c.old, c.new, 1)))
			require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
			require.ErrorContains(t, err, c.want)
		})
	}
	for end := range len(sample) - 1 {
		_, err := Decode([]byte(sample[:end]))
		require.ErrorIs(t, err, leasehold.ErrCorruptRecord, "the first %d bytes", end)
	}
}

// FuzzDecode also changes a table at one place, so that it comes further than into the first error.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(sample), 0, []byte{})
	f.Add([]byte(sample), strings.Index(sample, "1732"), []byte("17"))
	f.Add([]byte(sample), strings.Index(sample, "0.25"), []byte("1e-9"))
	f.Add(New().Encode(), 3, []byte("x"))
	f.Fuzz(func(t *testing.T, body []byte, at int, change []byte) {
		for _, b := range [][]byte{body, splice([]byte(sample), at, change)} {
			tab, err := Decode(b)
			if err != nil {
				require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
				continue
			}
			require.True(t, json.Valid(b), "%q", b)
			again, err := Decode(tab.Encode())
			require.NoError(t, err)
			require.Equal(t, told(tab), told(again))
			require.Equal(t, string(tab.Encode()), string(again.Encode()))
			require.Equal(t, index(tab), index(again))
			tab.Finish("n", 0)
			for r := range tab.Waiting() {
				require.NotEmpty(t, tab.InTheWay(r.ID), "a request waits for nothing")
			}
		}
	})
}

func splice(body []byte, at int, change []byte) []byte {
	at = max(0, min(at, len(body)))
	return slices.Concat(body[:at], change, body[min(at+len(change), len(body)):])
}

// big is a table as one process with so many locks makes it.
func big(t require.TestingT, locks int) *Table {
	tab := New()
	n := tab.Join(member(0))
	for i := range locks {
		require.NoError(t, tab.Ask(ID{Member: n, Number: uint64(i)}, []Claim{{Name: fmt.Sprintf("tenant-%05d", i)}}))
	}
	tab.Finish("nonce", 1_000_000)
	return tab
}

func TestTheSizeOfTenThousandLocks(t *testing.T) {
	body := big(t, 10_000).Encode()
	t.Logf("%d bytes", len(body))
	require.Less(t, len(body), 400_000)
}

func BenchmarkEncode(b *testing.B) {
	tab := big(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		tab.Encode()
	}
}

func BenchmarkDecode(b *testing.B) {
	body := big(b, 10_000).Encode()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		_, err := Decode(body)
		require.NoError(b, err)
	}
}
