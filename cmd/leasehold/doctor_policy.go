package main

import "encoding/json"

// policyStatement is one of a bucket policy.
type policyStatement struct {
	Sid, Effect, Principal, Action, Resource string
	Condition                                map[string]map[string]string
}

// bucketPolicy is the one by which Amazon S3 refuses what could overwrite or delete a lock by
// mistake. The conditions on keys are ANDed, so a write is refused if it has none of the two
// headers. s3:ObjectCreationOperation spares the parts of large uploads.
func bucketPolicy(at location) ([]byte, error) {
	if at.scheme != "s3" {
		return nil, fail(exitUsage, "--policy is for s3 URLs: only Amazon S3 has such policies")
	}
	objects := "arn:aws:s3:::" + at.bucket + "/" + lockPattern(at.key)
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
