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
		Short: "Show help about a command or topic",
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
