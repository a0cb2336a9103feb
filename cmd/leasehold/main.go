// Command leasehold takes locks and elects leaders on object storage, for scripts, cron, pipelines
// and operators.
//
//	leasehold run s3://bucket/locks/report -- make report
//
// "leasehold help" lists the commands; docs/cli.md in the repository has examples.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	_ "golang.org/x/crypto/x509roots/fallback" // for images without certificates

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/guard"
)

func main() {
	if guard.Wanted() {
		os.Exit(guard.Main(os.Args[2:], releaseOrphan))
	}
	os.Exit(execute(os.Args[1:]))
}

// execute runs one command and returns the exit code.
func execute(args []string) (code int) {
	a := newApp()
	defer a.stderr.flush()
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(os.Stderr, "leasehold: a bug: %v\n%s", p, debug.Stack())
			code = exit.Bug
		}
	}()
	root := a.root()
	root.SetArgs(args)
	var unwritten error
	root.SetOut(writer{os.Stdout, &unwritten}) // cobra prints help, the version and completions
	show := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if !strayArguments(cmd) {
			show(cmd, args)
		}
	})
	cmd, err := root.ExecuteC()
	switch {
	case unwritten != nil:
		err = unwritten
	case err == nil && strayArguments(cmd):
		err = exit.Errorf(exit.Usage, "%s has no command %q (see leasehold help %[1]s)", cmd.Name(), cmd.Flags().Arg(0))
	}
	var child childCode
	var signal childSignal
	switch {
	case err == nil:
		return 0
	case errors.As(err, &child):
		return int(child)
	case errors.As(err, &signal):
		return a.endBy(syscall.Signal(signal))
	case !a.started && !errors.As(err, new(*exit.Error)): // cobra's own errors
		err = exit.Errorf(exit.Usage, "%w (see leasehold help)", err)
	}
	code = exit.Code(err)
	a.complain(err, code)
	if ended, ok := errors.AsType[exit.Interrupted](err); ok {
		return a.endBy(ended.Signal)
	}
	return code
}

// strayArguments reports whether a command that cannot be run itself, such as a help topic, has
// arguments. Cobra shows its help all the same.
func strayArguments(cmd *cobra.Command) bool { return !cmd.Runnable() && cmd.Flags().NArg() > 0 }

// childCode is the exit code of the command that run was given, which is passed on without a word.
type childCode int

func (c childCode) Error() string { return fmt.Sprintf("the command has ended with %d", int(c)) }

// childSignal is the signal that has ended the command that run was given, which is passed on
// likewise.
type childSignal syscall.Signal

func (c childSignal) Error() string {
	return "the command was ended by signal " + syscall.Signal(c).String()
}

// endBy ends this process by a signal. The parent sees the same as without leasehold: a shell ends
// a script whose command was interrupted, and continues after a command that has only failed. It
// returns the exit code for a process that no signal ends, such as process 1 of a container.
func (a *app) endBy(s syscall.Signal) int {
	a.stderr.flush()
	guard.Raise(s)
	return exit.Signal + int(s)
}

// app is what all commands share.
type app struct {
	output  string
	verbose bool
	started bool // the arguments were understood
	log     *slog.Logger
	stderr  *errorLines // for everything but questions
}

func newApp() *app {
	a := &app{log: slog.New(slog.DiscardHandler)}
	a.stderr = newErrorLines(os.Stderr, func(lines int64) {
		a.newLog().Warn("lines dropped: standard error was not read", "lines", lines)
	})
	return a
}

func (a *app) json() bool { return a.output == "json" }

// complain writes an error as one line.
func (a *app) complain(err error, code int) {
	text := exit.Message(err)
	if a.verbose {
		text = exit.Whole(err)
	}
	if !a.json() {
		fmt.Fprintf(a.stderr, "leasehold: %s\n", exit.Printable(text))
		return
	}
	line, _ := json.Marshal(struct {
		Error string `json:"error"`
		Code  int    `json:"code"`
	}{text, code})
	fmt.Fprintf(a.stderr, "%s\n", line)
}

func (a *app) newLog() *slog.Logger {
	level := slog.LevelWarn
	if a.verbose {
		level = slog.LevelInfo
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, attr slog.Attr) slog.Attr {
		switch value := attr.Value.Any().(type) {
		case error:
			text := exit.Reword(value.Error())
			if !a.verbose {
				text = exit.Quiet(text)
			}
			return slog.String(attr.Key, text)
		case string:
			if attr.Key == slog.MessageKey {
				return slog.String(attr.Key, exit.Reword(value))
			}
		}
		return attr
	}}
	switch {
	case a.json():
		return slog.New(slog.NewJSONHandler(a.stderr, opts))
	case isTerminal(os.Stderr):
		return slog.New(newSpoken(a.stderr, *opts))
	}
	return slog.New(slog.NewTextHandler(a.stderr, opts)) // which quotes what a terminal may obey
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "leasehold",
		Short: "Locks and leader election on object storage",
		Long: `Locks and leader election on object storage: S3, Google Cloud Storage, Azure Blob
Storage, or a directory of this machine.

A lock is a URL: s3://bucket/key, gs://bucket/key, azblob://container/key or file:///directory/name.
See "leasehold help urls".`,
		Version:           build().Version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := noEmptyFlag(cmd.Flags()); err != nil {
				return err
			}
			if a.output != "text" && a.output != "json" {
				return fmt.Errorf("--output %q is neither text nor json", a.output)
			}
			a.started = true
			a.log = a.newLog()
			slog.SetDefault(a.log) // for packages that take no logger
			return nil
		},
	}
	root.SetVersionTemplate("leasehold {{.Version}}\n")
	root.PersistentFlags().StringVarP(&a.output, "output", "o", "text", "format of results, messages and errors: "+
		"text or json")
	root.PersistentFlags().BoolVarP(&a.verbose, "verbose", "v", false, "print more messages on standard error")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"},
		cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(a.commands()...)
	root.SetHelpCommand(help())
	for _, c := range root.Commands() {
		completeFlags(c)
	}
	for _, c := range append(root.Commands(), root) {
		c.Long, c.DisableFlagsInUseLine = wrap(c.Long, columns), true
	}
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages",
		fmt.Sprint(".FlagUsagesWrapped ", columns)))
	return root
}

// noEmptyFlag refuses a flag with an empty text, which is most often a variable of a script that is
// not set.
func noEmptyFlag(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" {
			err = exit.Errorf(exit.Usage, "--%s is empty (give it a value, or leave it out)", f.Name)
		}
	})
	return err
}

// action is the RunE of a command whose arguments are understood.
func (a *app) action(f func(ctx context.Context, cmd *cobra.Command,
	args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return f(cmd.Context(), cmd, args) }
}
