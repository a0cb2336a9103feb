package report

import (
	"embed"
	"fmt"
	"path"
	"regexp"
	"strings"
	"text/template"
)

//go:embed pages/*.tmpl
var prose embed.FS

// pages are templates of the pages, of tables that both pages have, of charts, of what other pages
// quote, and of why targets are missed.
var pages = template.Must(template.New("").Funcs(functions).ParseFS(prose, "pages/*.tmpl"))

// functions are what templates write figures with. The rows and the other figures are methods of
// view.
var functions = template.FuncMap{
	"num": num, "ms": ms, "micro": micro, "percent": percent, "kib": kib, "seconds": seconds, "thousands": thousands,
	"mul": mul, "div": div, "polls": polls, "trips": trips,
	"server": Server, "system": system, "farthest": farthest, "eight": eight, "inOrder": inOrder,
	"inMillis": inMillis, "shownTrip": func() float64 { return shownTrip },
}

// Each of these writes a figure with so many digits after the point.
var (
	num     = unit(1, "")
	ms      = unit(1e3, " ms")
	micro   = unit(1e6, " µs")
	percent = unit(100, " %")
	kib     = unit(1.0/1024, " KiB")
)

// unit writes numbers, and Figures with their intervals, of which factor are one of the unit.
func unit(factor float64, name string) func(digits int, figure any) string {
	return func(digits int, figure any) string {
		write := func(v float64) string { return fmt.Sprintf("%.*f", digits, factor*v) }
		f, ok := figure.(Figure)
		if !ok {
			return write(number(figure)) + name
		}
		value, low, high := write(f.Value), write(f.Low), write(f.High)
		if low == high {
			return value + name
		}
		return fmt.Sprintf("%s (%s to %s)%s", value, low, high, name)
	}
}

// number is the float64 of any number in the data.
func number(figure any) float64 {
	switch v := figure.(type) {
	case short:
		return float64(v)
	case int:
		return float64(v)
	}
	return figure.(float64)
}

// seconds writes a time with three digits.
func seconds(figure any) string {
	s := number(figure)
	if s < 1 {
		return fmt.Sprintf("%.3g ms", 1000*s)
	}
	return fmt.Sprintf("%.3g s", s)
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func mul(a, b any) float64 { return number(a) * number(b) }
func div(a, b any) float64 { return number(a) / number(b) }

// Render returns the pages and the charts, by their names under docs.
func (d *Data) Render() map[string]string {
	files := map[string]string{}
	for _, name := range []string{"performance.md", "evidence/performance-tables.md"} {
		files[name] = d.write(path.Base(name)+".tmpl") + "\n"
	}
	for name, c := range (view{d}).charts() {
		light := execute("chart", c)
		files["img/"+name+".svg"], files["img/"+name+"-dark.svg"] = light, darker.Replace(light)
	}
	return files
}

var span = regexp.MustCompile(`(?s)(<!-- bench:(\w+) -->)(.*?)(<!-- / -->)`)

// Fill replaces what stands between <!-- bench:name --> and <!-- / --> on a page by what the
// template of this name gives, and returns the names that it found. It panics if no template has a
// name.
func (d *Data) Fill(page string) (filled string, names []string) {
	filled = span.ReplaceAllStringFunc(page, func(s string) string {
		m := span.FindStringSubmatch(s)
		names = append(names, m[2])
		return m[1] + d.write(m[2]) + m[4]
	})
	return filled, names
}

// write returns what a template makes of the data. A line that is indented by two spaces continues
// the one before it, so that a paragraph or a row can have several in a template.
func (d *Data) write(name string) string {
	return strings.ReplaceAll(strings.TrimSpace(execute(name, view{d})), "\n  ", " ")
}

// execute panics if the template fails, which is a mistake in this package.
func execute(name string, data any) string {
	var b strings.Builder
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		panic(err)
	}
	return b.String()
}
