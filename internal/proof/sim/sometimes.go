package sim

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

// Situation is something that a simulation must bring about now and then. A simulation that no
// longer does checks less than it did, though no invariant fails.
type Situation struct {
	Name  string
	What  string // happens in a world for it to count
	Least int    // worlds of 10,000 in which it must happen: about a fifth of those in which it did
}

// Situations are those of one kind of world.
type Situations []Situation

// SituationsOf has the situations of situations.txt by the kind of world that must reach them.
var SituationsOf = make(map[string]Situations)

//go:embed situations.txt
var situations string

// A line "# KIND" is above those of its situations, which are "LEAST NAME: WHAT".
func init() {
	kind := ""
	for line := range strings.SplitSeq(situations, "\n") {
		head, what, _ := strings.Cut(line, ": ")
		first, name, _ := strings.Cut(head, " ")
		switch first {
		case "":
		case "#":
			kind = name
		default:
			s := Situation{Name: name, What: what}
			if _, err := fmt.Sscan(first, &s.Least); err != nil || isSituation[name] {
				panic("no new situation: " + line)
			}
			SituationsOf[kind], isSituation[name] = append(SituationsOf[kind], s), true
		}
	}
}

var isSituation = make(map[string]bool)

// enoughWorlds is how many worlds of a situation a run must be due, by Least, for its absence to be
// no chance. Five times as many are expected.
const enoughWorlds = 4

// Missing names the situations that happened in fewer of so many worlds than they must.
func (s Situations) Missing(worlds int, in map[string]int) (missing []string) {
	for _, at := range s {
		if due := worlds * at.Least / 10_000; due >= enoughWorlds && in[at.Name] < due {
			missing = append(missing, fmt.Sprintf("%s: in %d of %d worlds, not in %d: %s", at.Name, in[at.Name],
				worlds, due, at.What))
		}
	}
	return missing
}

// Lines say in how many worlds each situation has happened.
func (s Situations) Lines(in map[string]int) (lines []string) {
	for _, at := range s {
		lines = append(lines, fmt.Sprintf("%10d  %s", in[at.Name], at.Name))
	}
	return lines
}

// occurred holds the names of the situations that a world has reached.
type occurred struct{ names sync.Map }

func (o *occurred) mark(situation string) { o.markIf(true, situation) }

func (o *occurred) markIf(is bool, situation string) {
	if !isSituation[situation] {
		panic("no such situation: " + situation)
	}
	if is {
		o.names.Store(situation, nil)
	}
}

// reached counts each of them once.
func (o *occurred) reached() map[string]int {
	in := make(map[string]int)
	for name := range o.names.Range {
		in[name.(string)] = 1
	}
	return in
}
