package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// mutant is one small change to the code. Its code does the change if the variable MUT is n, and what the original does otherwise.
type mutant struct {
	n     int
	pos   token.Position
	what  string
	line  string // the source line
	edits []edit
}

func (m *mutant) String() string {
	return fmt.Sprintf("%d %s:%d:%d %s", m.n, filepath.Base(m.pos.Filename), m.pos.Line, m.pos.Column, m.what)
}

// edit puts text in place of cut bytes. At one offset, the code that ends there comes before the code that begins there.
type edit struct {
	n, at, cut int
	side       int // -1 where the mutant's code ends, 0 for an operator, 1 where it begins
	text       string
}

// binary has what a mutant makes of an operator, and the code that is one or the other: before, between and after the operands, with @
// for whether the mutant is on. Each operand occurs once, so that mutants nest. The code of && and || is De Morgan's law.
var binary = map[token.Token]struct{ mutated, before, between, after string }{
	token.LSS:  {"<=", "mutLess(@, ", ",", ")"},
	token.LEQ:  {"<", "mutLess(!@, ", ",", ")"},
	token.GTR:  {">=", "mutMore(@, ", ",", ")"},
	token.GEQ:  {">", "mutMore(!@, ", ",", ")"},
	token.EQL:  {"!=", "(@ != (", "==", "))"},
	token.NEQ:  {"==", "(@ != (", "!=", "))"},
	token.LAND: {"||", "(@ != ((@ != (", ")) && (@ != (", "))))"},
	token.LOR:  {"&&", "(@ != ((@ != (", ")) || (@ != (", "))))"},
}

// find finds the mutants of a file, outer ones before those within them, and numbers them from first on.
func find(path string, first int) (text []byte, mutants []*mutant, err error) {
	if text, err = os.ReadFile(path); err != nil {
		return nil, nil, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	lines := strings.Split(string(text), "\n")
	add := func(node ast.Node, what, before, after string) *mutant {
		pos := fset.Position(node.Pos())
		m := &mutant{n: first + len(mutants), pos: pos, what: what, line: strings.TrimSpace(lines[pos.Line-1])}
		m.edit(pos.Offset, 0, 1, before)
		m.edit(fset.Position(node.End()).Offset, 0, -1, after)
		mutants = append(mutants, m)
		return m
	}
	listed := make(map[ast.Node]bool) // statements that an if may enclose: not those in the head of another
	list := func(stmts []ast.Stmt) {
		for _, s := range stmts {
			listed[s] = true
		}
	}
	remove := func(node ast.Node) {
		if listed[node] {
			add(node, "removed", "if !@ { ", " }")
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.GenDecl:
			return x.Tok != token.CONST
		case *ast.BlockStmt:
			list(x.List)
		case *ast.CaseClause:
			list(x.Body)
		case *ast.CommClause:
			list(x.Body)
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt:
			remove(x)
		case *ast.AssignStmt:
			if x.Tok != token.DEFINE {
				remove(x)
			}
		case *ast.IfStmt:
			if b, ok := x.Cond.(*ast.BinaryExpr); !ok || binary[b.Op].mutated == "" {
				add(x.Cond, "negated", "(@ != (", "))")
			}
		case *ast.BinaryExpr:
			if b := binary[x.Op]; b.mutated != "" {
				m := add(x, x.Op.String()+" -> "+b.mutated, b.before, b.after)
				m.edit(fset.Position(x.OpPos).Offset, len(x.Op.String()), 0, b.between)
			}
		case *ast.Ident:
			if x.Name == "true" || x.Name == "false" {
				add(x, "flipped", "(@ != ", ")")
			}
		}
		return true
	})
	return text, mutants, nil
}

func (m *mutant) edit(at, cut, side int, text string) {
	text = strings.ReplaceAll(text, "@", fmt.Sprintf("mutOn(%d)", m.n))
	m.edits = append(m.edits, edit{m.n, at, cut, side, text})
}
