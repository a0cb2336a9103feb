package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// theme is what differs between plots for light and for dark pages. Both have no background of
// their own.
type theme struct {
	suffix     string
	text, grid color.Color
	colors     map[string]color.Color
}

func rgb(hex uint32) color.Color {
	return color.RGBA{uint8(hex >> 16), uint8(hex >> 8), uint8(hex), 255}
}

// A system has one colour in all plots. Variants of leasehold share it.
var (
	light = theme{"", rgb(0x1f2328), rgb(0xd1d9e0), map[string]color.Color{
		Leasehold: rgb(0x0969da), SafePlain: rgb(0x57606a), Plain: rgb(0x8c6d1f), Litestream: rgb(0xbc4c00),
		ClientGo: rgb(0x8250df), Election: rgb(0x1a7f37), Mutex: rgb(0x4ac26b), Redislock: rgb(0xcf222e),
		Advisory: rgb(0x116329),
	}}
	dark = theme{"-dark", rgb(0xe6edf3), rgb(0x3d444d), map[string]color.Color{
		Leasehold: rgb(0x58a6ff), SafePlain: rgb(0x9198a1), Plain: rgb(0xd4a72c), Litestream: rgb(0xff8e4d),
		ClientGo: rgb(0xbc8cff), Election: rgb(0x3fb950), Mutex: rgb(0x9be9a8), Redislock: rgb(0xff7b72),
		Advisory: rgb(0x7ee787),
	}}
)

func (t theme) color(peer string) color.Color {
	if strings.HasPrefix(peer, Leasehold) {
		peer = Leasehold
	}
	return t.colors[peer]
}

// marks tell the groups of a row apart, from the first to the last.
var marks = []draw.GlyphDrawer{draw.RingGlyph{}, draw.TriangleGlyph{}, draw.BoxGlyph{}, draw.CircleGlyph{}}

const width, height = 8.6 * vg.Inch, 3.4 * vg.Inch // 826 pixels wide, as wide as the page of a repository

// newPlot returns an empty plot in the colours of the theme.
func (t theme) newPlot(title string) *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.BackgroundColor = nil
	p.Title.Text = title
	p.Title.TextStyle.Font.Size, p.Title.Padding = vg.Points(12), vg.Points(8)
	p.Title.TextStyle.Color, p.Legend.TextStyle.Color = t.text, t.text
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Tick.Color, a.Label.TextStyle.Color, a.Tick.Label.Color = t.text, t.text, t.text, t.text
		a.Label.TextStyle.Font.Size, a.Tick.Label.Font.Size = vg.Points(10), vg.Points(10)
	}
	p.Legend.TextStyle.Font.Size, p.Legend.Padding, p.Legend.ThumbnailWidth = vg.Points(10), vg.Points(4), vg.Points(30)
	return p
}

func (t theme) grid2() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = t.grid, t.grid
	g.Horizontal.Width = 0
	return g
}

// rows makes the vertical axis one of rows, from the top to the bottom. The plot is drawn over the
// grid.
func (t theme) rows(p *plot.Plot, names []string, drawn plot.Plotter) {
	var ticks labels
	for i, name := range names {
		ticks = append(ticks, plot.Tick{Value: float64(len(names) - 1 - i), Label: name})
	}
	p.Add(t.grid2(), drawn)
	p.Y.Tick.Marker, p.Y.Tick.Length, p.Y.Width, p.Y.Padding = ticks, 0, 0, vg.Points(16)
}

// svg draws the plot, and its legend to the right of it. A text has room for a font that is a fifth
// wider than the one that it is measured by.
func svg(p *plot.Plot, legend bool) string {
	canvas := vgsvg.NewWith(vgsvg.UseWH(width, height))
	const edge = 6
	area := draw.Crop(draw.New(canvas), edge, -edge, edge, -edge)
	if legend {
		l := p.Legend
		p.Legend = plot.NewLegend()
		l.Top, l.Left = true, true
		l.Draw(draw.Crop(area, width-1.8*vg.Inch, 0, 0, -0.3*vg.Inch))
		area = draw.Crop(area, 0, -1.9*vg.Inch, 0, 0)
	}
	p.Draw(area)
	var b bytes.Buffer
	_, _ = canvas.WriteTo(&b)
	// Readers without this font have one of the same metrics.
	return strings.ReplaceAll(b.String(), "font-family:Liberation Sans", "font-family:'Liberation "+
		"Sans',Arial,Helvetica,sans-serif")
}

// bar is a distribution: a line from its shortest to its longest value, a thicker one from p10 to
// p90 with an end at p99, and a dot at the median.
type bar struct {
	color color.Color
	Sample
}

type bars []bar

func (list bars) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax = math.Inf(1), math.Inf(-1)
	for _, b := range list {
		xmin, xmax = min(xmin, float64(b.Least)), max(xmax, float64(b.Longest))
	}
	return xmin, xmax, -0.5, float64(len(list)) - 0.5
}

func (list bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for i, b := range list {
		at := y(float64(len(list) - 1 - i))
		line := func(width float64, from, to float64) {
			c.StrokeLine2(draw.LineStyle{Color: b.color, Width: vg.Points(width)}, x(from), at, x(to), at)
		}
		line(1, float64(b.Least), float64(b.Longest))
		line(7, float64(b.P10), b.P90.Value)
		c.StrokeLine2(draw.LineStyle{Color: b.color, Width: vg.Points(2)}, x(b.P99.Value), at-vg.Points(6),
			x(b.P99.Value), at+vg.Points(6))
		c.DrawGlyph(draw.GlyphStyle{
			Color:  color.White,
			Radius: vg.Points(4.5),
			Shape:  draw.CircleGlyph{},
		}, vg.Point{X: x(b.P50.Value), Y: at})
		c.DrawGlyph(draw.GlyphStyle{
			Color:  b.color,
			Radius: vg.Points(3.2),
			Shape:  draw.CircleGlyph{},
		}, vg.Point{X: x(b.P50.Value), Y: at})
	}
}

// labels are fixed ticks.
type labels []plot.Tick

func (l labels) Ticks(float64, float64) []plot.Tick { return l }

func numbers(values ...float64) (list labels) {
	for _, v := range values {
		list = append(list, plot.Tick{Value: v, Label: fmt.Sprint(v)})
	}
	return list
}

func (d *Data) takeoverPlot(t theme) string {
	p := t.newPlot("Nobody leads after a crash, in TTLs since the last renewal")
	p.X.Label.Text = "dot: median; bar: 80 %; stroke: 99 %; line: all (* no allowance for clocks)"
	var list bars
	var names []string
	for _, peer := range order {
		if v := d.takeover(Virtual, peer, Crash, 2); v != nil {
			label := peer
			if peer == Plain || peer == Litestream {
				label += " *"
			}
			list = append(list, bar{t.color(peer), v.Time})
			names = append(names, label)
		} else if v := d.longestTTL(peer); v != nil && peer != Advisory { // which has none
			list = append(list, bar{t.color(peer), v.Time})
			names = append(names, fmt.Sprintf("%s, TTL %v s", peer, v.TTL))
		}
	}
	t.rows(p, names, list)
	p.X.Tick.Marker = every(0.1)
	p.X.Min, p.X.Max = min(0.95, p.X.Min), p.X.Max+0.02
	return svg(p, false)
}

// every sets a tick at each multiple.
type every float64

func (e every) Ticks(from, to float64) (list []plot.Tick) {
	for i := math.Ceil(from/float64(e) - 1e-9); i*float64(e) <= to+1e-9; i++ {
		list = append(list, plot.Tick{Value: i * float64(e), Label: fmt.Sprintf("%.1f", i*float64(e))})
	}
	return list
}

// dots are a row of values, one for each group; less than 0 if there is none.
type dots struct {
	color  color.Color
	values []float64
}

type dotRows []dots

func (list dotRows) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax = math.Inf(1), math.Inf(-1)
	for _, row := range list {
		for _, v := range row.values {
			if v >= 0 {
				xmin, xmax = min(xmin, v), max(xmax, v)
			}
		}
	}
	return xmin, xmax, -0.5, float64(len(list)) - 0.5
}

func (list dotRows) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for i, row := range list {
		for group, v := range row.values {
			if v >= 0 {
				c.DrawGlyph(draw.GlyphStyle{
					Color:  row.color,
					Radius: vg.Points(4),
					Shape:  marks[group],
				}, vg.Point{X: x(v), Y: y(float64(len(list) - 1 - i))})
			}
		}
	}
}

// mark is a group in the legend.
type mark struct{ draw.GlyphStyle }

// Thumbnail draws the mark.
func (m mark) Thumbnail(c *draw.Canvas) { c.DrawGlyph(m.GlyphStyle, c.Center()) }

// dotPlot draws a row for each system and a dot for each group, whose names stand in the legend.
// value is less than 0 if a system was not measured in a group.
func (t theme) dotPlot(p *plot.Plot, groups []string, value func(peer string, group int) float64) {
	var list dotRows
	var names []string
	for _, peer := range order {
		row, measured := dots{color: t.color(peer)}, false
		for i := range groups {
			v := value(peer, i)
			row.values, measured = append(row.values, v), measured || v >= 0
		}
		if measured {
			list, names = append(list, row), append(names, peer)
		}
	}
	t.rows(p, names, list)
	p.Legend.ThumbnailWidth = vg.Points(12)
	for i, name := range groups {
		p.Legend.Add(name, mark{draw.GlyphStyle{Color: t.text, Radius: vg.Points(4), Shape: marks[i]}})
	}
}

func (d *Data) handoverPlot(t theme) string {
	p := t.newPlot("A leader releases: median time until the next one leads")
	p.X.Label.Text = "ms from the call of Release"
	p.X.Scale = plot.LogScale{}
	var trips []float64
	var groups []string
	for _, h := range d.Handovers {
		if h.Peer == Leasehold && h.Way == Release {
			trips, groups = append(trips, h.RoundTrip),
				append(groups, fmt.Sprintf("round trip %.0f ms", h.RoundTrip*1000))
		}
	}
	t.dotPlot(p, groups, func(peer string, group int) float64 {
		for _, h := range d.Handovers {
			if h.Peer == peer && h.Way == Release && h.RoundTrip == trips[group] {
				return 1000 * h.FromCall.P50.Value
			}
		}
		return -1
	})
	p.X.Tick.Marker = numbers(1, 10, 100, 1000)
	p.X.Min, p.X.Max = min(1, p.X.Min), max(1000, p.X.Max*1.1)
	return svg(p, true)
}

func (d *Data) crowdPlot(t theme) string {
	p := t.newPlot("Share of the acquisitions that change hands, " + d.Places[0].Name + " and etcd")
	p.X.Label.Text = "%"
	var sizes []int
	var groups []string
	for _, c := range d.Crowds {
		if c.Place == d.Places[0].Name && c.Peer == Leasehold {
			sizes, groups = append(sizes, c.Candidates), append(groups, fmt.Sprint(c.Candidates, " candidates"))
		}
	}
	t.dotPlot(p, groups, func(peer string, group int) float64 {
		for _, c := range d.Crowds {
			if c.Place == d.Places[0].Name && c.Peer == peer && c.Candidates == sizes[group] {
				return 100 * c.Share.Value
			}
		}
		return -1
	})
	p.X.Min, p.X.Max = 0, 100
	p.X.Tick.Marker = numbers(0, 25, 50, 75, 100)
	return svg(p, true)
}
