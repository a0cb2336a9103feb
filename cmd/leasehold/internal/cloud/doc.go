// Package cloud tries leasehold in a bucket of a real cloud: make cloud URL=s3://bucket/prefix. It
// has tests alone, and they reach a cloud only if LEASEHOLD_CLOUD_URL names a bucket. Otherwise
// they do the same to the servers of the other tests, as if those were clouds.
package cloud
