package gcsstore_test

import (
	"net/http"
	"testing"

	"github.com/leasehold-go/leasehold/internal/testkit/storehttptest"
)

// These would be Cloud Storage's if they were what they seem to be.
func TestRepliesThatAreNotCloudStorages(t *testing.T) {
	const (
		writes     = "PutIfNoneMatch PutIfMatch"
		generation = "X-Goog-Generation"
	)
	reply, cutOff := storehttptest.Status, storehttptest.CutOff
	object := storehttptest.Headed(200, map[string]string{generation: "5"},
		`{"generation":"5","crc32c":"`+checksum([]byte("{}"))+`"}`)
	redirect := func(status int) storehttptest.Reply {
		return storehttptest.Reply{Answer: storehttptest.Redirect(status, object)}
	}
	const half = `{"error":{"message":"`
	json := map[string]string{"Content-Type": "application/json; charset=UTF-8"}
	jsonOf1000 := map[string]string{"Content-Type": "application/json; charset=UTF-8", "Content-Length": "1000"}
	for api, s := range overHTTP {
		goes404 := writes // there the error says "create the bucket, or correct the endpoint"
		if api == "XML" {
			goes404 += " Get" // by the XML API the client reports only that it was a 404
		}
		t.Run(api, func(t *testing.T) {
			s.ForeignReplies(t, map[string]storehttptest.Reply{
				"a page with a generation": {
					Answer: storehttptest.Headed(200, map[string]string{generation: "5"}, storehttptest.Page),
				},
				"text":                           {Answer: reply(200, "OK"), Fine: "DeleteIfMatch"},
				"nothing":                        {Answer: reply(200, ""), Fine: "DeleteIfMatch", Passes: true},
				"an object without a generation": {Answer: reply(200, "{}"), Fine: "DeleteIfMatch", Passes: true},
				"204":                            {Answer: reply(204, ""), Fine: "DeleteIfMatch", Passes: true},
				"206": {Answer: storehttptest.Headed(206, map[string]string{
					generation: "5", "Content-Range": "bytes 0-1/100",
				}, "{}"), Passes: true},
				"302 to an object":   redirect(302),
				"303 to an object":   redirect(303),
				"307 to an object":   redirect(307),
				"404 of a Go server": {Answer: http.NotFound, Fine: goes404},
				// its reason might have been a rate limit
				"403 cut off":        {Answer: cutOff(403, jsonOf1000, half), Passes: true},
				"403 chunks cut off": {Answer: cutOff(403, json, half), Passes: true},
				"400 cut off":        {Answer: cutOff(400, jsonOf1000, half), Passes: true},
			})
		})
	}
}

func TestEndpointsThatCannotWorkAreTold(t *testing.T) {
	overHTTP["JSON"].Endpoints(t, "does this port expect https?", map[string][]string{
		"gs://bucket": {"unsupported protocol scheme", "the endpoint must begin with http:// or https://"},
	})
}

func TestFaultsOfThisMachineMayPassOnceTheServerHasAnswered(t *testing.T) {
	overHTTP["JSON"].MachineFaults(t)
}
