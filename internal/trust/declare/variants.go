package declare

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/a2a"
	"github.com/bodycam-dev/bodycam/internal/trust"
	"golang.org/x/text/unicode/norm"
)

// Variant pins one form in which the declaration was served.
type Variant struct {
	Version string   `json:"version,omitempty"` // A2A-Version that was asked for
	Caller  string   `json:"caller"`            // who asked: known, unknown, one of the names of [callers], extended, again
	Path    string   `json:"path,omitempty"`    // another well-known path than the first
	SHA256  string   `json:"sha256,omitempty"`
	Form    string   `json:"form,omitempty"`
	Skills  []string `json:"skills,omitempty"`
	Hosts   []string `json:"hosts,omitempty"`
	Error   string   `json:"error,omitempty"`
	known   bool     // the caller showed credentials
	content []string // normalised skills
	urls    []string
}

// The callers with a name of their own.
const (
	callerKnown    = "known"    // with credentials
	callerUnknown  = "unknown"  // without
	callerExtended = "extended" // with credentials, asking for the extended card
	callerAgain    = "again"    // the first once more, after all others
)

// callers are unknown callers of other kinds: an agent that is told from its auditors by what they say of themselves has
// these to take in as well.
var callers = []struct {
	name   string
	header http.Header
}{
	{"browser", http.Header{"User-Agent": {"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"},
		"Accept": {"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, "Accept-Language": {"en-US,en;q=0.5"}}},
	{"python SDK", http.Header{"User-Agent": {"python-httpx/0.28.1"}, "Accept": {"*/*"}}},
	{"JavaScript SDK", http.Header{"User-Agent": {"node"}, "Accept": {"*/*"}}},
	{"curl", http.Header{"User-Agent": {"curl/8.14.1"}, "Accept": {"*/*"}}},
	{"registry", http.Header{"User-Agent": {"Googlebot/2.1 (+http://www.google.com/bot.html)"}, "Accept": {"application/a2a+json, application/json;q=0.9"}}},
	// Documentation addresses (RFC 5737): servers that believe the header take the caller for one from elsewhere.
	{"forwarded", http.Header{"X-Forwarded-For": {"203.0.113.7"}, "X-Real-Ip": {"203.0.113.7"}, "Forwarded": {"for=203.0.113.7"}}},
}

// variants fetches the card as several callers, under several versions, at the other well-known path and once more, and
// compares what is declared.
func (r *Result) variants(ctx context.Context, o Options, f *a2a.Fetched) {
	nobody := o.Nobody
	if nobody == nil {
		nobody = o.HTTP
	} else {
		r.fetch(ctx, o.HTTP, f.URL, Variant{Caller: callerKnown, known: true}, nil)
	}
	r.fetch(ctx, nobody, f.URL, Variant{Caller: callerUnknown}, nil)
	for _, c := range callers {
		r.fetch(ctx, nobody, f.URL, Variant{Caller: c.name}, c.header)
	}
	from := make([]string, 0, len(o.From))
	for name := range o.From {
		from = append(from, name)
	}
	slices.Sort(from)
	for _, name := range from {
		r.fetch(ctx, o.From[name], f.URL, Variant{Caller: name}, nil)
	}
	if u, err := url.Parse(f.URL); err == nil {
		if root, ok := strings.CutSuffix(u.Path, a2a.CardPath); ok {
			u.Path = root + a2a.CardPathOld
		} else if root, ok := strings.CutSuffix(u.Path, a2a.CardPathOld); ok {
			u.Path = root + a2a.CardPath
		}
		if other := u.String(); other != f.URL {
			r.fetch(ctx, o.HTTP, other, Variant{Caller: callerOf(o), Path: u.Path, known: o.Nobody != nil}, nil)
		}
	}
	r.fetch(ctx, o.HTTP, f.URL, Variant{Caller: callerAgain, known: o.Nobody != nil}, nil)
	base := Variant{known: o.Nobody != nil}
	base.fill(f.Card)
	r.Findings = append(r.Findings, Equivocations(base, r.Variants)...)
}

func callerOf(o Options) string {
	if o.Nobody != nil {
		return callerKnown
	}
	return callerUnknown
}

// fetch adds the variants that a caller is served: one for each version.
func (r *Result) fetch(ctx context.Context, client *http.Client, at string, v Variant, header http.Header) {
	for _, version := range []string{"", "0.3", "1.0"} {
		h := header.Clone()
		if h == nil {
			h = http.Header{}
		}
		if version != "" {
			h.Set("A2A-Version", version)
		}
		w := v
		w.Version = version
		if g, err := a2a.Discover(ctx, client, at, h); err != nil {
			w.Error = err.Error()
		} else {
			w.fill(g.Card)
		}
		r.Variants = append(r.Variants, w)
	}
}

// extended fetches the card for known callers. That it tells more is no equivocation; what it tells is declared too, so
// that its skills are probed and judged.
func (r *Result) extended(ctx context.Context, o Options) {
	if !r.Card.Extended || len(r.Card.Interfaces) == 0 {
		return
	}
	note := func(rule string, s bodycam.Severity, format string, args ...any) {
		r.Findings = append(r.Findings, bodycam.Finding{Analysis: "trust", Rule: rule, Class: "declaration", Severity: s, Count: 1,
			Title: bodycam.Escape(fmt.Sprintf(format, args...))})
	}
	ask := func(c *http.Client, d a2a.Dialling) (*a2a.Fetched, error) {
		return (&a2a.Client{HTTP: c, Interface: r.Card.Interfaces[0], Form: r.Card.Form, GRPC: d}).Extended(ctx)
	}
	nobody, anonymous := o.Nobody, a2a.Dialling{Dial: o.GRPC.Dial, TLS: o.GRPC.TLS}
	if nobody == nil {
		nobody = o.HTTP
	}
	if anonymous.TLS != nil {
		anonymous.TLS = anonymous.TLS.Clone()
		anonymous.TLS.Certificates = nil
	}
	v := Variant{Caller: callerExtended, known: o.Nobody != nil}
	open, err := ask(nobody, anonymous)
	if err == nil {
		note("extended-card", bodycam.Low, "the extended card is served to callers without credentials")
	}
	f := open
	if o.Nobody != nil {
		f, err = ask(o.HTTP, o.GRPC)
	}
	if err != nil {
		v.Error = err.Error()
		r.Variants = append(r.Variants, v)
		if o.Nobody != nil {
			note("extended-card", bodycam.Low, "the card declares an extended card, and none is served to these credentials")
		} else {
			note("extended-card", bodycam.Info, "the card declares an extended card, which needs credentials: skills that it alone declares are not probed")
		}
		return
	}
	v.fill(f.Card)
	r.Variants = append(r.Variants, v)
	if r.Card.Interfaces[0].Binding != a2a.GRPC { // there the form is the SDK's
		for _, d := range f.Deviations {
			r.Findings = append(r.Findings, deviationFinding("extended card: "+d.Place, d.Rule, d.What, d.Severity))
		}
	}
	var more []string
	for _, s := range FromCard(f.Card).Skills {
		i := slices.IndexFunc(r.Declaration.Skills, func(have trust.Skill) bool { return have.ID == s.ID })
		switch {
		case i < 0:
			r.Declaration.Skills = append(r.Declaration.Skills, s)
			more = append(more, s.ID)
		case normal(r.Declaration.Skills[i].Description) != normal(s.Description):
			note("extended-card", bodycam.Info, "the extended card describes the skill %s otherwise: %s", s.ID, s.Description)
		}
	}
	if len(more) > 0 {
		note("extended-card", bodycam.Info, "%d skills are declared to known callers alone, and probed too: %s", len(more), strings.Join(more, ", "))
	}
}

func (v *Variant) fill(c *a2a.Card) {
	sum := sha256.Sum256(c.Raw)
	v.SHA256, v.Form = hex.EncodeToString(sum[:]), c.Form
	for _, s := range c.Skills {
		v.Skills = append(v.Skills, s.ID)
		var tags []string
		for _, t := range s.Tags {
			tags = append(tags, normal(t))
		}
		slices.Sort(tags)
		v.content = append(v.content, normal(s.ID)+"\x00"+normal(s.Name)+"\x00"+normal(s.Description)+"\x00"+strings.Join(tags, ","))
	}
	slices.Sort(v.Skills)
	slices.Sort(v.content)
	for _, i := range c.Interfaces {
		at, host := normalURL(i.URL)
		v.urls = append(v.urls, i.Binding+" "+at+" "+i.Tenant)
		if !slices.Contains(v.Hosts, host) {
			v.Hosts = append(v.Hosts, host)
		}
	}
	slices.Sort(v.urls)
	slices.Sort(v.Hosts)
}

// normal makes texts comparable that differ only in case, spaces and the form of their Unicode.
func normal(s string) string {
	return strings.ToLower(strings.Join(strings.Fields(norm.NFC.String(s)), " "))
}

// normalURL makes endpoints comparable: case of the host, default ports and closing slashes don't count.
func normalURL(raw string) (at, host string) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return raw, raw // host:port of gRPC
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if p := u.Port(); p == "80" && u.Scheme == "http" || p == "443" && u.Scheme == "https" {
		u.Host = strings.TrimSuffix(u.Host, ":"+p)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u.String(), u.Host
}

// Equivocations are the differences between what was declared to different callers and under different versions: other
// skills, other hosts, or, to another caller of the same version, other endpoints. Another wire form is none, nor is an
// extended card, nor that callers without credentials are told of fewer skills.
func Equivocations(base Variant, list []Variant) []bodycam.Finding {
	var out []bodycam.Finding
	seen := map[string]bool{}
	find := func(v Variant, what string) {
		place := ""
		if v.Path != "" {
			place = " at " + v.Path
		}
		if seen[v.Caller+what+place] { // the same under another version says no more
			return
		}
		seen[v.Caller+what+place] = true
		out = append(out, bodycam.Finding{Analysis: "trust", Rule: "equivocation", Class: "declaration", Severity: bodycam.High, Count: 1,
			Title: bodycam.Escape(fmt.Sprintf("the agent declares other %s to the caller %q with A2A-Version %q%s", what, v.Caller, v.Version, place))})
	}
	for i, v := range list {
		if v.Error != "" || v.Caller == callerExtended {
			continue
		}
		fewer := base.known && !v.known && !slices.ContainsFunc(v.content, func(s string) bool { return !slices.Contains(base.content, s) })
		if !slices.Equal(v.content, base.content) && !fewer {
			find(v, fmt.Sprintf("skills (%s, not %s)", strings.Join(v.Skills, ", "), strings.Join(base.Skills, ", ")))
			continue
		}
		if !slices.ContainsFunc(v.Hosts, func(h string) bool { return slices.Contains(base.Hosts, h) }) && len(v.Hosts) > 0 {
			find(v, "hosts ("+strings.Join(v.Hosts, ", ")+")")
			continue
		}
		for _, w := range list[:i] {
			if w.Error == "" && w.Version == v.Version && w.Path == v.Path && w.Caller != callerExtended && !slices.Equal(v.urls, w.urls) {
				find(v, "endpoints ("+strings.Join(v.urls, ", ")+")")
				break
			}
		}
	}
	return out
}
