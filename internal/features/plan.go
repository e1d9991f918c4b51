package features

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// Plan is what a run's plan says that features and analyses need: the members of run.json's plan that they read.
type Plan struct {
	Task struct {
		Name        string `json:"name"`
		Dir         string `json:"dir"`
		Form        string `json:"form"`
		Instruction string `json:"instruction"`
	} `json:"task"`
	Kind struct {
		Name string `json:"name"`
	} `json:"kind"`
	Workdir string `json:"workdir"`
	Network struct {
		Mode    string   `json:"mode"`
		Allow   []string `json:"allow"`
		Forward []struct {
			Host string `json:"host"`
		} `json:"forward"`
	} `json:"network"`
	Env []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
	Agent struct {
		Harness    string `json:"harness"`
		Home       string `json:"home"`
		MCPServers []struct {
			URL     string   `json:"url"`
			Command string   `json:"command"`
			Args    []string `json:"args"`
		} `json:"mcp_servers"`
	} `json:"agent"`
	Skills  []Skill   `json:"skills"`
	Grading []Grading `json:"grading"`
	Judge   struct {
		Workspace       []string `json:"workspace"`
		HarnessState    []string `json:"harness_state"`
		TrustedPrograms []string `json:"trusted_programs"`
		TrustedDomains  []string `json:"trusted_domains"`
		Allow           struct {
			Commands []string `json:"commands"`
			Files    []string `json:"files"`
			Hosts    []string `json:"hosts"`
		} `json:"allow"`
		Suppressions []Suppression     `json:"suppressions"`
		Obligations  []json.RawMessage `json:"obligations"`
	} `json:"judge"`
}

// Suppression is a finding that is known and accepted, for a time.
type Suppression struct {
	Rule     string `json:"rule"`
	Resource string `json:"resource"`
	Reason   string `json:"reason"`
	Expires  string `json:"expires"` // last day on which it counts, as 2027-01-31
}

// Skill is one skill of the task, whose files are named relative to each of its roots.
type Skill struct {
	Name     string     `json:"name"`
	Roots    []string   `json:"roots"`
	Files    []PlanFile `json:"files"`
	Document string     `json:"document"` // of SKILL.md, escaped
}

// Grading is material that the agent must not read.
type Grading struct {
	Role    string     `json:"role"` // tests, solution, answer
	Box     string     `json:"box"`
	Files   []PlanFile `json:"files"`
	Exposed []string   `json:"exposed"`
}

// PlanFile is a file that the plan lists with its digest.
type PlanFile struct {
	Path   string `json:"path"`
	Mode   string `json:"mode"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// ParsePlan reads a run's plan. A run without one has an empty plan: nothing is declared, so everything stands out.
func ParsePlan(raw json.RawMessage) (*Plan, error) {
	p := &Plan{}
	if len(raw) == 0 {
		return p, nil
	}
	if err := json.Unmarshal(raw, p); err != nil {
		return nil, fmt.Errorf("reading the run's plan: %w", err)
	}
	p.Task.Instruction = bodycam.Unescape(p.Task.Instruction)
	for i := range p.Skills {
		p.Skills[i].Document = bodycam.Unescape(p.Skills[i].Document)
		unescapePaths(p.Skills[i].Files)
	}
	for i := range p.Grading {
		unescapePaths(p.Grading[i].Files)
	}
	return p, nil
}

func unescapePaths(files []PlanFile) {
	for i := range files {
		files[i].Path = bodycam.Unescape(files[i].Path)
	}
}

// GradingPlaces lists the paths where grading material lies in the box.
func (p *Plan) GradingPlaces() []string {
	var out []string
	for _, g := range p.Grading {
		if g.Box != "" {
			out = append(out, g.Box)
		}
		out = append(out, g.Exposed...)
	}
	return out
}

// GradingRole tells which material a path holds: "" where it holds none.
func (p *Plan) GradingRole(path string) (role string, exposed bool) {
	for _, g := range p.Grading {
		if g.Box != "" && under(path, []string{g.Box}) {
			return g.Role, false
		}
		if under(path, g.Exposed) {
			return g.Role, true
		}
	}
	return "", false
}

// SkillRoots lists the directories that hold skills.
func (p *Plan) SkillRoots() []string {
	var out []string
	for _, s := range p.Skills {
		out = append(out, s.Roots...)
	}
	return out
}

// DeclaredHosts lists what the task's environment itself names: allowed and forwarded hosts, hosts in the values of
// its environment variables, tool servers.
func (p *Plan) DeclaredHosts() []string {
	out := slices.Clone(p.Network.Allow)
	for _, f := range p.Network.Forward {
		out = append(out, f.Host)
	}
	for _, e := range p.Env {
		out = append(out, urlHosts(e.Value)...)
	}
	for _, m := range p.Agent.MCPServers {
		out = append(out, urlHosts(m.URL)...)
	}
	return out
}

// urlHosts finds the hosts of URLs in a text.
func urlHosts(s string) []string {
	var out []string
	for {
		i := strings.Index(s, "://")
		if i < 0 {
			return out
		}
		s = s[i+3:]
		end := strings.IndexAny(s, "/?#\"'`<>()[]{},; \t\r\n")
		host := s
		if end >= 0 {
			host = s[:end]
		}
		if at := strings.LastIndexByte(host, '@'); at >= 0 {
			host = host[at+1:]
		}
		if h, _, ok := strings.Cut(host, ":"); ok {
			host = h
		}
		host = strings.ToLower(strings.Trim(host, ".*_"))
		if host != "" {
			out = append(out, host)
		}
	}
}
