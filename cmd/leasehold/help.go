package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
)

// topics are the help texts that belong to no command, and sections of the man page.
var topics = []struct{ name, short, text string }{
	{"urls", "How a URL names a lock", `A lock is one object, and its URL names it:

  s3://BUCKET/KEY         S3, and servers that speak its protocol
  gs://BUCKET/KEY         Google Cloud Storage
  azblob://CONTAINER/KEY  Azure Blob Storage
  file:///DIRECTORY/NAME  a directory, for the processes of one machine

Parameters of s3:

  endpoint=URL  a server other than Amazon's, such as http://localhost:9000
  region=NAME   of the bucket; without one, and with an endpoint, us-east-1
  path-style=1  the bucket is in the path, not before the host name; this is
                the default where there is an endpoint, and 0 turns it off
  profile=NAME  of the AWS configuration
  createonly=1  the server can only create objects: see docs/stores.md
  sse=AES256, aws:kms or aws:kms:dsse
                encryption that each write names, where a policy of the bucket
                demands it; sse-kms-key-id=KEY is the ID, ARN or alias of a key

Without parameters, the environment and the files of the AWS SDK decide: AWS_REGION, AWS_PROFILE,
AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and others, ~/.aws/config, the role of the machine.

The parameter of gs is endpoint=URL. The credentials are Google's application default credentials.

Parameters of azblob:

  account=NAME  of the storage account
  endpoint=URL  of the account, if it is not https://NAME.blob.core.windows.net;
                of Azurite http://127.0.0.1:10000/devstoreaccount1

The credentials are those of az storage: AZURE_STORAGE_CONNECTION_STRING, where
UseDevelopmentStorage=true is Azurite; or AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or
AZURE_STORAGE_SAS_TOKEN; or else Microsoft Entra's: a managed identity, az login, the variables of
azidentity.

Credentials do not belong in a URL.

Write special characters of a key as %XX: a question mark as %3F, a # as %23, a percent sign as %25.
In a file URL, a slash ends the directory, and %2F is a slash of the key:
file:///var/lib/locks/jobs%2Fnightly is the lock "jobs/nightly" of a Go program in the directory
/var/lib/locks. "list -o json" prints the URL of each lock. Quote a URL with a ? or & for the shell.
All who want the same lock must name the same object.`},
	{"guarantee", "What is dead when the lease is lost",
		`"run" and "elect" hold the lock by a lease, which they renew three times in its TTL. If the
lease is lost because the store cannot be reached, or because leasehold itself is stopped or killed,
the command and all that it has started are dead before anyone else can hold the lock:

  TTL - margin    SIGTERM to the command's process group, and to what left it
  TTL - margin/2  SIGKILL
  TTL             others may take the lock

The times count from before the last renewal was sent. The TTL is 30 s, or --ttl, and the margin is
a third of it, or --margin. The library's defaults are 15 s and a fifth. A process takes longer to
end than a goroutine: it is told to, and killed after half the margin.

The command runs in a process group of its own. A small guard process starts it, knows the times by
a clock that counts the sleep of the machine, and keeps them if leasehold is stopped or killed. If
the guard is killed, leasehold ends the command. On Linux, the guard finds what has left the process
group (setsid, daemons), and a command whose guard is killed dies with it.

On Linux, the command has a control group (cgroup2) of its own, where leasehold may make one below
its own. The system kills all that is in it in one step. Without one, the guard finds the processes
in /proc. "run -v" says which it is.

When the command has ended, what it has left running gets SIGTERM, and SIGKILL half a margin later.
Then the lock is released.

If leasehold is killed, the command dies at once. When nothing of it is left, the guard waits for --crash-drain (1 s)
and releases the lock, unless the lease is over by then. With --on-crash keep, or if the guard is killed, too, the lock
is free after the TTL.

Not covered:

- A process that is not started below the command: a container, a unit of systemd, a job on another
  machine.
- Without a control group: a process that leasehold may not kill, such as one under sudo. Run
  leasehold under sudo instead.
- A process in an uninterruptible system call dies when the call returns.
- A machine or cgroup that is frozen as a whole and goes on later: the command may run for some
  milliseconds before it is killed.
- leasehold and the guard stopped or killed at the same time. Then the command dies only if the
  guard was killed.
- On systems other than Linux, a process that has left the process group.
- "break" by an operator frees the lock at once. The command is ended at the next renewal.
- What the command has already sent on its way. Pass LEASEHOLD_TOKEN to what you write to, and let
  it refuse lower tokens.`},
	{"exit-codes", "The meaning of each exit code", exitCodeTable()},
}

func exitCodeTable() string {
	var b strings.Builder
	for _, e := range exit.Codes {
		const indent = 17
		meaning := wrap(strings.ReplaceAll(e.Meaning, "`", `"`), columns-indent)
		fmt.Fprintf(&b, "  %-*s%s\n", indent-2, e.Code,
			strings.ReplaceAll(meaning, "\n", "\n"+strings.Repeat(" ", indent)))
	}
	return "If a command has such an exit code of its own, only the message of leasehold tells the difference.\n\n" +
		strings.TrimSuffix(b.String(), "\n")
}

const columns = 80

// wrap breaks the lines of paragraphs anew. One that is indented keeps its lines, and each item of
// a list begins one.
func wrap(text string, width int) string {
	var out []string
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(paragraph, "  ") {
			out = append(out, paragraph)
			continue
		}
		var lines []string
		indent := ""
		for source := range strings.SplitSeq(paragraph, "\n") {
			if strings.HasPrefix(source, "- ") {
				lines, indent = append(lines, "-"), "  "
				source = source[2:]
			} else if len(lines) == 0 {
				lines = append(lines, "")
			}
			for word := range strings.FieldsSeq(source) {
				last := &lines[len(lines)-1]
				switch {
				case *last == "":
					*last = word
				case len(*last)+1+len(word) > width:
					lines = append(lines, indent+word)
				default:
					*last += " " + word
				}
			}
		}
		out = append(out, strings.Join(lines, "\n"))
	}
	return strings.Join(out, "\n\n")
}

// helpTopics are commands that cannot be run, which cobra lists as topics.
func helpTopics() (cmds []*cobra.Command) {
	for _, t := range topics {
		cmds = append(cmds, &cobra.Command{Use: t.name, Short: t.short, Long: t.text})
	}
	return cmds
}

// help is cobra's, except that it fails if there is nothing to show.
func help() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND | TOPIC]",
		Short: "Help about any command or topic",
		ValidArgsFunction: func(cmd *cobra.Command, args []string,
			_ string) (names []string, _ cobra.ShellCompDirective) {
			if len(args) == 0 {
				for _, c := range cmd.Root().Commands() {
					names = append(names, c.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return exit.Errorf(exit.Usage, "there is no help about %q (see leasehold help)",
					strings.Join(args, " "))
			}
			about.InitDefaultHelpFlag() // which is made when a command is run
			return about.Help()
		},
	}
}

func (a *app) man() *cobra.Command {
	return &cobra.Command{
		Use:   "man",
		Short: "Print the manual page",
		Long: "Prints the manual page in the format of man(1): leasehold man > " +
			"/usr/local/share/man/man1/leasehold.1",
		Args:              cobra.NoArgs,
		ValidArgsFunction: noFiles,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var page strings.Builder
			writeManual(&page, cmd.Root())
			if _, err := os.Stdout.WriteString(page.String()); err != nil {
				return exit.Errorf(exit.Output, "the page cannot be written: %w", err)
			}
			return nil
		},
	}
}

// writeManual writes the manual page of all commands and topics.
func writeManual(w io.Writer, root *cobra.Command) {
	fmt.Fprintf(w, ".TH LEASEHOLD 1 \"\" \"leasehold %s\" \"User Commands\"\n", roff(root.Version))
	fmt.Fprintf(w, ".SH NAME\nleasehold \\- %s\n", roff(strings.ToLower(root.Short[:1])+root.Short[1:]))
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B leasehold\n.I COMMAND\n[\\fIflags\\fR] ...\n.SH DESCRIPTION\n")
	manText(w, root.Long)
	manFlags(w, root.PersistentFlags())
	fmt.Fprint(w, ".SH COMMANDS\n")
	for _, c := range root.Commands() {
		if !c.Runnable() || c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		fmt.Fprintf(w, ".SS %q\n", roff("leasehold "+c.Use))
		manText(w, c.Long)
		manFlags(w, c.LocalNonPersistentFlags())
		if c.Example != "" {
			fmt.Fprintf(w, ".PP\n.nf\n%s\n.fi\n", roff(c.Example))
		}
	}
	for _, t := range topics {
		fmt.Fprintf(w, ".SH %s\n", roff(strings.ToUpper(strings.ReplaceAll(t.name, "-", " "))))
		manText(w, t.text)
	}
}

// manIndent is how far man(1) moves a text to the right.
const manIndent = 7

// manText writes paragraphs. One whose lines are indented keeps its lines, and each item of a list
// begins one.
func manText(w io.Writer, text string) {
	for paragraph := range strings.SplitSeq(wrap(text, columns-manIndent), "\n\n") {
		if strings.HasPrefix(paragraph, "  ") || strings.HasPrefix(paragraph, "- ") {
			fmt.Fprintf(w, ".PP\n.nf\n%s\n.fi\n", roff(paragraph))
		} else {
			fmt.Fprintf(w, ".PP\n%s\n", roff(paragraph))
		}
	}
}

func manFlags(w io.Writer, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		name, usage := pflag.UnquoteUsage(f)
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		short := ""
		if f.Shorthand != "" {
			short = "-" + f.Shorthand + ", "
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0s" && f.DefValue != "[]" {
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(w, ".TP\n\\fB%s\\fR \\fI%s\\fR\n%s\n", roff(short+"--"+f.Name), roff(name), roff(usage))
	})
}

// roff is text that troff takes as it is.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", "").Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
