package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// noFiles completes nothing, because a handle is not a file.
func noFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeFlags completes the values of a command's flags, and offers files for those alone that
// may be one.
func completeFlags(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		complete := noFiles
		switch f.Name {
		case "handle-file", "on-new-leader":
			return
		case "on-crash":
			complete = cobra.FixedCompletions([]string{crashReleases, crashKeeps}, cobra.ShellCompDirectiveNoFileComp)
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, complete)
	})
}

const (
	completesFor = time.Second // the user waits after TAB
	maxCompleted = 1000        // which no shell shows
)

// keys completes the URL of a lock by the keys in its store, if the store lists them in time.
// Failures are silent, because they would appear in the line that is being typed.
func keys(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && cmd.Name() != "status" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var schemes []string
	for _, scheme := range []string{"s3://", "gs://", "azblob://", "file:///"} {
		if strings.HasPrefix(scheme, begun) {
			schemes = append(schemes, scheme)
		}
	}
	if schemes != nil {
		return schemes, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	slog.SetDefault(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(context.Background(), completesFor)
	defer cancel()
	found := make(chan []string, 1)
	go func() { found <- keysThatBegin(ctx, begun) }()
	select {
	case urls := <-found:
		return urls, cobra.ShellCompDirectiveNoFileComp
	case <-ctx.Done(): // an SDK may look for credentials for longer
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// keysThatBegin has the URLs of locks that begin with a text, until ctx ends.
func keysThatBegin(ctx context.Context, text string) (urls []string) {
	at, err := place.ParsePrefix(text)
	if err != nil {
		return nil
	}
	store, err := at.Open(ctx)
	if err != nil {
		return nil
	}
	defer store.Close()
	for object, err := range store.Objects(ctx, at.Key) {
		if err != nil || len(urls) == maxCompleted {
			break
		}
		if object.Err != nil || storeapi.BadKey(object.Key) != "" {
			continue
		}
		at.Key = object.Key
		if url := at.String(); strings.HasPrefix(url, text) {
			urls = append(urls, url)
		}
	}
	return urls
}
