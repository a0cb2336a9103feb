package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// built describes a build.
type built struct {
	Version  string `json:"version"` // of the module
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // the source differs from the revision
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func build() built {
	b := built{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String begins as the output of --version does.
func (b built) String() string {
	text := "leasehold " + b.Version
	if b.Revision != "" {
		text += " revision " + b.Revision
	}
	if b.Modified {
		text += " with changes"
	}
	return fmt.Sprint(text, " ", b.Go, " ", b.Platform)
}

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version [flags]",
		Short: "Show the version of this program",
		Long: `Shows the version of this program, the revision of its source where the build knows it, the
release of Go and the platform.`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: noFiles,
		RunE: a.action(func(context.Context, *cobra.Command, []string) error {
			b := build()
			return a.print(b, b.String())
		}),
	}
}
