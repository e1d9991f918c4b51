package conduct

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/features"
)

// Graph is a run's star graph: the execution root at the centre, one node per resource, and an edge per action with
// its exact count and the rows that caused it.
type Graph struct {
	Run   string `json:"run"`
	Task  string `json:"task"`
	Model string `json:"model,omitempty"`
	Agent string `json:"agent"`
	Nodes []Node `json:"nodes"` // the first is the root
	Edges []Edge `json:"edges"`
}

// Node is one resource.
type Node struct {
	ID    string `json:"id"`
	Type  string `json:"type"` // root, command, file, host
	Name  string `json:"name"`
	Noise string `json:"noise,omitempty"` // why it is counted apart
}

// Edge is what was done with a resource.
type Edge struct {
	From   string           `json:"from"`
	To     string           `json:"to"`
	Action string           `json:"action"`
	Count  uint64           `json:"count"`            // calls that worked
	Failed uint64           `json:"failed,omitempty"` // calls that failed
	Rows   []features.Cause `json:"rows"`             // of the resource; empty: no row explains it
	Events [2]uint64        `json:"events"`           // first and last
}

// Graph makes the run's star graph. With noise, what is ordinary for the system and the harness is in it too, marked.
func (s *Subject) Graph(noise bool) *Graph {
	g := &Graph{Run: s.Info.ID, Task: s.Info.Task.Name, Model: s.Info.Agent.Model, Agent: s.Info.Agent.Harness,
		Nodes: []Node{{ID: "root", Type: "root", Name: bodycam.Escape(s.Info.Task.Name)}}, Edges: []Edge{}}
	for _, r := range s.Features.Resources {
		if r.Noise != "" && !noise {
			continue
		}
		id := fmt.Sprintf("%s%d", r.Kind[:1], len(g.Nodes))
		g.Nodes = append(g.Nodes, Node{ID: id, Type: string(r.Kind), Name: bodycam.Escape(r.Name), Noise: r.Noise})
		rows := r.Rows
		if rows == nil {
			rows = []features.Cause{}
		}
		actions := map[features.Action]bool{}
		for a := range r.Counts {
			actions[a] = true
		}
		for a := range r.Failed {
			actions[a] = true
		}
		for _, a := range slices.Sorted(maps.Keys(actions)) {
			g.Edges = append(g.Edges, Edge{From: "root", To: id, Action: string(a), Count: r.Counts[a], Failed: r.Failed[a], Rows: rows, Events: r.At[a]})
		}
	}
	return g
}

// The forms in which a graph can be written.
var GraphForms = []string{"json", "graphml", "dot"}

// Write writes the graph in one of [GraphForms].
func (g *Graph) Write(w io.Writer, form string) error {
	switch form {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(g)
	case "graphml":
		return g.graphML(w)
	case "dot":
		return g.dot(w)
	}
	return fmt.Errorf("unknown form %q: want %s", form, strings.Join(GraphForms, ", "))
}

func (e *Edge) rows() string {
	var parts []string
	for _, r := range e.Rows {
		parts = append(parts, fmt.Sprint(r.Row))
	}
	return strings.Join(parts, " ")
}

type xmlData struct {
	Key   string `xml:"key,attr"`
	Value string `xml:",chardata"`
}

type xmlElement struct {
	ID     string    `xml:"id,attr,omitempty"`
	Source string    `xml:"source,attr,omitempty"`
	Target string    `xml:"target,attr,omitempty"`
	Data   []xmlData `xml:"data"`
}

type xmlKey struct {
	ID   string `xml:"id,attr"`
	For  string `xml:"for,attr"`
	Name string `xml:"attr.name,attr"`
	Type string `xml:"attr.type,attr"`
}

func (g *Graph) graphML(w io.Writer) error {
	type graph struct {
		ID    string       `xml:"id,attr"`
		Kind  string       `xml:"edgedefault,attr"`
		Nodes []xmlElement `xml:"node"`
		Edges []xmlElement `xml:"edge"`
	}
	doc := struct {
		XMLName xml.Name `xml:"graphml"`
		NS      string   `xml:"xmlns,attr"`
		Keys    []xmlKey `xml:"key"`
		Graph   graph    `xml:"graph"`
	}{NS: "http://graphml.graphdrawing.org/xmlns", Graph: graph{ID: g.Run, Kind: "directed"}}
	for _, k := range [][3]string{{"node", "type", "string"}, {"node", "name", "string"}, {"node", "noise", "string"}, {"edge", "action", "string"},
		{"edge", "count", "long"}, {"edge", "failed", "long"}, {"edge", "rows", "string"}} {
		doc.Keys = append(doc.Keys, xmlKey{ID: k[1], For: k[0], Name: k[1], Type: k[2]})
	}
	for _, n := range g.Nodes {
		doc.Graph.Nodes = append(doc.Graph.Nodes, xmlElement{ID: n.ID, Data: []xmlData{{"type", n.Type}, {"name", xmlText(n.Name)}, {"noise", n.Noise}}})
	}
	for i := range g.Edges {
		e := &g.Edges[i]
		doc.Graph.Edges = append(doc.Graph.Edges, xmlElement{Source: e.From, Target: e.To, Data: []xmlData{{"action", e.Action},
			{"count", fmt.Sprint(e.Count)}, {"failed", fmt.Sprint(e.Failed)}, {"rows", e.rows()}}})
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// xmlText makes a name fit for XML, which has no form for control characters.
func xmlText(s string) string { return bodycam.Printable(s) }

func (g *Graph) dot(w io.Writer) error {
	var b strings.Builder
	b.WriteString("graph run {\n  layout=neato; overlap=false; splines=true;\n  node [fontname=\"sans\", fontsize=10];\n")
	shapes := map[string]string{"root": "doublecircle", "command": "box", "file": "note", "host": "hexagon"}
	for _, n := range g.Nodes {
		style := ""
		if n.Noise != "" {
			style = ", color=grey, fontcolor=grey"
		}
		fmt.Fprintf(&b, "  %s [shape=%s, label=%s%s];\n", n.ID, shapes[n.Type], dotQuote(n.Name), style)
	}
	for i := range g.Edges {
		e := &g.Edges[i]
		label := fmt.Sprintf("%s ×%d", e.Action, e.Count)
		if e.Failed > 0 {
			label += fmt.Sprintf(" (%d failed)", e.Failed)
		}
		if rows := e.rows(); rows != "" {
			label += " rows " + rows
		}
		fmt.Fprintf(&b, "  %s -- %s [label=%s];\n", e.From, e.To, dotQuote(label))
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func dotQuote(s string) string {
	s = bodycam.Printable(s)
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
