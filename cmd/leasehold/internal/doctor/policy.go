package doctor

import (
	"encoding/json"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
)

// policyStatement is one of a bucket policy.
type policyStatement struct {
	Sid, Effect, Principal, Action, Resource string
	Condition                                map[string]map[string]string
}

// Policy is the bucket policy, as JSON, by which Amazon S3 refuses what could overwrite or delete a
// lock by mistake. Its error, for another store, is of the code exit.Usage.
//
// The conditions on keys are ANDed, so a write is refused if it has none of the two headers.
// s3:ObjectCreationOperation spares the parts of large uploads.
func Policy(at place.Location) ([]byte, error) {
	if at.Scheme != "s3" {
		return nil, exit.Errorf(exit.Usage, "--policy is for s3 URLs: only Amazon S3 has such policies")
	}
	objects := "arn:aws:s3:::" + at.Bucket + "/" + lockPattern(at.Key)
	all := struct {
		Version   string
		Statement []policyStatement
	}{"2012-10-17", []policyStatement{
		{"WritesOnlyWithConditions", "Deny", "*", "s3:PutObject", objects, map[string]map[string]string{
			"Null": {"s3:if-match": "true", "s3:if-none-match": "true"},
			"Bool": {"s3:ObjectCreationOperation": "true"},
		}},
		{"DeletesOnlyWithConditions", "Deny", "*", "s3:DeleteObject", objects, map[string]map[string]string{
			"Null": {"s3:if-match": "true"},
		}},
	}}
	return json.MarshalIndent(all, "", "  ")
}
