package doctor

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/probe"
)

func examineAzure(ctx context.Context, at place.Location, sides bool) Report {
	names := []string{"endpoint", "credentials", "container", "list", "get", "put", "delete",
		"conditions", "clock", "latency"}
	if sides {
		names = append(names, "sides")
	}
	r := newReport(append(names, "lease", "versioning", "soft delete", "immutability", "legal hold",
		"hierarchical namespace")...)
	client, err := at.AzureClient()
	if err != nil {
		r.fail("credentials", exit.Config, "see leasehold help urls", "%s", exit.Message(err))
		return r
	}
	store, err := at.Open(ctx)
	if err != nil {
		r.fail("credentials", exit.Config, "see leasehold help urls", "%s", exit.Message(err))
		return r
	}
	defer store.Close()
	const role = ", or give the role Storage Blob Data Contributor on the container"
	p := newExam(r, at, store, permissions{
		list: "allow to read blobs" + role, get: "allow to read blobs (r of a SAS)" + role,
		put:    "allow to create and write blobs (c and w of a SAS)" + role,
		delete: "d of a SAS", other: lookAtServer,
	})
	err = p.look(ctx)
	if !p.reachedAzure(client.URL(), at, err) {
		return r
	}
	in := client.ServiceClient().NewContainerClient(at.Bucket)
	var found leasehold.Report
	if p.admitted(ctx, err) {
		found = p.conditions(ctx)
		p.blobAzure(ctx, in.NewBlobClient(p.key), found.ServerClock)
		p.latency(ctx)
	}
	p.remove(ctx, found.Leftover)
	leaseAzure(ctx, r, in.NewBlobClient(at.Key))
	settingsAzure(ctx, r, client, in)
	return r
}

// reachedAzure judges the first request. It reports whether the container is there, and these
// credentials are known.
func (p *exam) reachedAzure(server string, at place.Location, err error) bool {
	r := p.report
	server, _, _ = strings.Cut(server, "?") // without the signature
	reply, answered := errors.AsType[*azcore.ResponseError](err)
	code := bloberror.Code("")
	if answered {
		code = bloberror.Code(reply.ErrorCode)
	}
	switch {
	case err == nil, code == bloberror.AuthorizationPermissionMismatch:
		r.ok("endpoint", "%s answers", server)
		r.ok("credentials", "accepted")
		r.ok("container", "%s exists", at.Bucket)
		return true
	case answered && (reply.StatusCode == http.StatusForbidden || reply.StatusCode == http.StatusUnauthorized):
		r.ok("endpoint", "%s answers", server)
		r.broke("credentials", err, "correct the credentials")
	case code == bloberror.ContainerNotFound, code == bloberror.ContainerBeingDeleted:
		r.ok("endpoint", "%s answers", server)
		r.ok("credentials", "accepted")
		r.fail("container", exit.Config, "create the container, or correct its name", "%s does not exist", at.Bucket)
	default:
		r.broke("endpoint", err, "check host and port, the network, and that this is Azure Blob Storage")
	}
	return false
}

// blobAzure looks at a blob that was just written: its dates, and whether it has a version.
func (p *exam) blobAzure(ctx context.Context, of *blob.Client, verdict leasehold.ClockVerdict) {
	var seen blob.GetPropertiesResponse
	err := p.ask(ctx, func(ctx context.Context) (err error) {
		seen, err = of.GetProperties(ctx, nil)
		if bloberror.HasCode(err, bloberror.BlobNotFound) {
			return probe.ErrDisturbed
		}
		return err
	})
	if err != nil {
		p.report.broke("clock", err, "run doctor again")
		return
	}
	p.clock(verdict, value(seen.Date), value(seen.LastModified))
	if seen.VersionID != nil {
		p.report.warn("versioning", "switch blob versioning off for the account, or add a lifecycle rule that "+
			"deletes previous versions after a day",
			"on: each renewal stays as a version")
	} else {
		p.report.ok("versioning", "off")
	}
}

func value(t *time.Time) (v time.Time) {
	if t != nil {
		v = *t
	}
	return v
}

// leaseAzure looks at the lock's own blob, if there is one.
func leaseAzure(ctx context.Context, r Report, of *blob.Client) {
	ctx, cancel := context.WithTimeout(ctx, place.RequestLimit)
	defer cancel()
	switch seen, err := of.GetProperties(ctx, nil); {
	case bloberror.HasCode(err, bloberror.BlobNotFound):
		r.ok("lease", "the lock has no blob yet")
	case err != nil:
		r.unsettled("lease", "to read blobs (r of a SAS)", err)
	case seen.LeaseStatus != nil && *seen.LeaseStatus == lease.StatusTypeLocked:
		r.fail("lease", exit.Config, "break the lease (az storage blob lease break), and do not lease the blobs "+
			"of locks",
			"a client holds an Azure lease on the lock's blob, so it cannot be written")
	default:
		r.ok("lease", "no Azure lease on the lock's blob")
	}
}

// settingsAzure checks what container and account do with blobs by themselves.
func settingsAzure(ctx context.Context, r Report, client *azblob.Client, in *container.Client) {
	ctx, cancel := context.WithTimeout(ctx, 3*place.RequestLimit)
	defer cancel()
	if seen, err := in.GetProperties(ctx, nil); err != nil {
		const right = "Microsoft.Storage/storageAccounts/blobServices/containers/read"
		r.unsettled("immutability", right, err)
		r.unsettled("legal hold", right, err)
	} else {
		if is(seen.HasImmutabilityPolicy) || is(seen.IsImmutableStorageWithVersioningEnabled) {
			r.fail("immutability", exit.Config, "use a container without immutability policy",
				"no lock can be renewed: blobs of this container cannot be overwritten")
		} else {
			r.ok("immutability", "no policy")
		}
		if is(seen.HasLegalHold) {
			r.fail("legal hold", exit.Config, "clear the legal hold, or use another container",
				"no lock can be renewed: blobs of this container cannot be overwritten")
		} else {
			r.ok("legal hold", "none")
		}
	}
	switch seen, err := client.ServiceClient().GetProperties(ctx, nil); {
	case err != nil:
		r.unsettled("soft delete", "Microsoft.Storage/storageAccounts/blobServices/read", err)
	case seen.DeleteRetentionPolicy != nil && is(seen.DeleteRetentionPolicy.Enabled):
		r.warn("soft delete", "switch soft delete of blobs off for the account",
			"each renewal stays for some days, and is paid for")
	default:
		r.ok("soft delete", "off")
	}
	switch seen, err := in.GetAccountInfo(ctx, nil); {
	case err != nil:
		r.unsettled("hierarchical namespace", "Microsoft.Storage/storageAccounts/blobServices/getInfo/action", err)
	case is(seen.IsHierarchicalNamespaceEnabled):
		r.warn("hierarchical namespace", "use an account without one", "on: leasehold has not been tried on such "+
			"an account")
	default:
		r.ok("hierarchical namespace", "off")
	}
}

func is(b *bool) bool { return b != nil && *b }
