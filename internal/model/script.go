package model

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Script is a scripted model: what it says, turn by turn.
type Script struct {
	// Model is the name that the server's model list shows. Requests may name any model.
	Model string `yaml:"model"`
	// Stock answers requests that offer no tools (titles, summaries, classifiers). Empty means "OK".
	Stock string `yaml:"stock"`
	// Turns is a script of one conversation: short for a single entry of Conversations without Match.
	Turns []Turn `yaml:"turns"`
	// Conversations are told apart by Match, first match wins.
	Conversations []Conversation `yaml:"conversations"`
}

// Conversation is the script for the requests whose instruction matches.
type Conversation struct {
	Name  string `yaml:"name"`
	Match string `yaml:"match"` // regexp on the text of the user before the model's first turn; "" matches all
	// WithoutTools makes the conversation answer requests that offer no tools, and only those.
	WithoutTools bool   `yaml:"without_tools"`
	Turns        []Turn `yaml:"turns"`

	match *regexp.Regexp
}

// Turn is one answer of the model. It has exactly one action (Sh, Write, Patch, Call, Calls, Error, Drop, Stall) or
// Text; Text can also go before a tool call.
type Turn struct {
	Text  string `yaml:"text"`
	Sh    string `yaml:"sh"`    // a shell command, given to whichever shell tool the client offers
	Write *Write `yaml:"write"` // a file, through a write tool, apply_patch or the shell
	Patch string `yaml:"patch"` // a patch in apply_patch's form, for clients that offer apply_patch
	Call  *Call  `yaml:"call"`  // a tool by name
	Calls []Turn `yaml:"calls"` // several of sh, write, patch and call in one turn

	Error *Fail         `yaml:"error"` // an HTTP error instead of an answer
	Drop  string        `yaml:"drop"`  // "before" or "middle": the connection is closed there
	Stall time.Duration `yaml:"stall"` // nothing comes for so long, then the connection is closed
	Times int           `yaml:"times"` // how often Error, Drop or Stall happens before the script goes on; default 1

	Delay  time.Duration `yaml:"delay"`  // wait before the answer
	Expect string        `yaml:"expect"` // regexp that the last tool output must match; named groups become variables
	Else   []Turn        `yaml:"else"`   // played instead of this turn and the rest where Expect doesn't match
	Repeat int           `yaml:"repeat"` // the turn is played so often, Expect asked before the first; {{i}} counts from 1
	Tool   string        `yaml:"tool"`   // name of the tool that Sh, Write or Patch shall use

	expect *regexp.Regexp
	i      int
	line   int
}

// Write is a file to be written.
type Write struct {
	Path    string `yaml:"path"`
	Content string `yaml:"content"`
}

// Call is a call of a named tool.
type Call struct {
	Tool  string         `yaml:"tool"`
	Args  map[string]any `yaml:"args"`
	Input string         `yaml:"input"` // of a custom tool, which takes text instead of arguments
}

// Fail is an HTTP error.
type Fail struct {
	Status     int    `yaml:"status"`
	Message    string `yaml:"message"`
	RetryAfter int    `yaml:"retry_after"` // seconds; 0: no header
}

// Load reads a script file.
func Load(path string) (*Script, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read model script: %w (a script is a YAML file with a list named turns; see docs/MODEL.md)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read model script: %w", err)
	}
	return Parse(path, data)
}

// Parse reads a script. Errors begin with name and line.
func Parse(name string, data []byte) (*Script, error) {
	s := new(Script)
	file, err := decode(data, s)
	if err != nil {
		return nil, located(name, err)
	}
	c := &checker{name: name, file: file}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil, c.errorf("$", "the script is empty: it needs turns or conversations")
	}
	if len(file.Docs) > 1 {
		return nil, fmt.Errorf("%s: a script is one YAML document, this file has %d", name, len(file.Docs))
	}
	if err := c.script(s); err != nil {
		return nil, err
	}
	return s, nil
}

// decode reads the first document into s. The YAML package panics on some malformed input (a tag on an empty node);
// that is an error of the input like any other.
func decode(data []byte, s *Script) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the YAML is malformed (%v)", p)
		}
	}()
	if file, err = parser.ParseBytes(data, 0); err != nil {
		return nil, err
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return file, nil
	}
	return file, yaml.NodeToValue(file.Docs[0].Body, s, yaml.Strict())
}

// located puts the line before an error of the YAML package.
func located(name string, err error) error {
	var ye yaml.Error
	if !errors.As(err, &ye) || ye.GetToken() == nil || ye.GetToken().Position == nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	msg := ye.GetMessage()
	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) {
		key := ye.GetToken().Value
		msg = fmt.Sprintf("unknown key %q", key)
		if at := belongs(key); at != "" {
			msg += " here: it belongs to " + at
		} else if near := nearest(key, keys()); near != "" {
			msg += fmt.Sprintf(" (did you mean %q?)", near)
		}
	}
	return fmt.Errorf("%s:%d: %s", name, ye.GetToken().Position.Line, msg)
}

// parts are the mappings that a script is made of.
var parts = []struct {
	what string
	of   reflect.Type
}{
	{"the script itself, beside turns or conversations", reflect.TypeFor[Script]()}, {"an entry of conversations", reflect.TypeFor[Conversation]()},
	{"a turn", reflect.TypeFor[Turn]()}, {"what write holds", reflect.TypeFor[Write]()}, {"what call holds", reflect.TypeFor[Call]()}, {"what error holds", reflect.TypeFor[Fail]()},
}

// keysOf are the keys that a mapping can have.
func keysOf(t reflect.Type) (out []string) {
	for f := range t.Fields() {
		if key := f.Tag.Get("yaml"); key != "" {
			out = append(out, key)
		}
	}
	return out
}

// keys are all keys of a script, for the hint after a misspelt one.
func keys() (out []string) {
	for _, p := range parts {
		out = append(out, keysOf(p.of)...)
	}
	return out
}

// belongs says where a key of that name can stand, "" where there is none.
func belongs(key string) string {
	var at []string
	for _, p := range parts {
		if slices.Contains(keysOf(p.of), key) {
			at = append(at, p.what)
		}
	}
	return strings.Join(at, ", or to ")
}

// checker validates what YAML's types can't say, and compiles the regexps.
type checker struct {
	name string
	file *ast.File
}

func (c *checker) line(path string) int {
	p, err := yaml.PathString(path)
	if err != nil {
		return 0
	}
	n, err := p.FilterFile(c.file)
	if err != nil || n == nil {
		return 0
	}
	// A mapping's token is the colon of its first pair, on the right line.
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

func (c *checker) errorf(path, format string, args ...any) error {
	msg := fmt.Sprintf(format, args...)
	if line := c.line(path); line > 0 {
		return fmt.Errorf("%s:%d: %s", c.name, line, msg)
	}
	return fmt.Errorf("%s: %s", c.name, msg)
}

func (c *checker) script(s *Script) error {
	if len(s.Turns) > 0 && len(s.Conversations) > 0 {
		return c.errorf("$.turns", "a script has either turns or conversations, not both")
	}
	if len(s.Turns) == 0 && len(s.Conversations) == 0 {
		return c.errorf("$", "the script has no turns: it needs turns or conversations")
	}
	if s.Model == "" {
		s.Model = "scripted"
	}
	if s.Stock == "" {
		s.Stock = "OK"
	}
	if len(s.Turns) > 0 {
		turns, err := c.sequence("$.turns", s.Turns, nil)
		if err != nil {
			return err
		}
		s.Turns, s.Conversations = nil, []Conversation{{Name: "main", Turns: turns}}
		return nil
	}
	names := map[string]bool{}
	for i := range s.Conversations {
		cv, path := &s.Conversations[i], fmt.Sprintf("$.conversations[%d]", i)
		if cv.Name == "" {
			cv.Name = fmt.Sprintf("conversation-%d", i+1)
		}
		if names[cv.Name] {
			return c.errorf(path, "two conversations are named %q", cv.Name)
		}
		names[cv.Name] = true
		re, err := regexp.Compile(cv.Match)
		if err != nil {
			return c.errorf(path+".match", "match: %v", err)
		}
		cv.match = re
		if cv.Turns, err = c.sequence(path+".turns", cv.Turns, nil); err != nil {
			return err
		}
	}
	return nil
}

// sequence checks a list of turns, expands repeats and makes sure that it ends. vars are the variables known where
// it begins.
func (c *checker) sequence(path string, turns []Turn, vars []string) ([]Turn, error) {
	if len(turns) == 0 {
		return nil, c.errorf(path, "a conversation needs at least one turn")
	}
	vars = slices.Clone(vars)
	var out []Turn
	for i := range turns {
		t, at := &turns[i], fmt.Sprintf("%s[%d]", path, i)
		t.line = c.line(at)
		if err := c.turn(at, t, &vars); err != nil {
			return nil, err
		}
		out = append(out, *t)
		for n := 2; n <= t.Repeat; n++ {
			again := *t // expect is asked once, before the first
			again.i, again.expect, again.Else = n, nil, nil
			out = append(out, again)
		}
	}
	if last := &out[len(out)-1]; last.acts() {
		return nil, c.errorf(fmt.Sprintf("%s[%d]", path, len(turns)-1),
			"the last turn calls a tool, so the agent will ask again and get no answer: end with a text turn")
	}
	return out, nil
}

func (c *checker) turn(at string, t *Turn, vars *[]string) error {
	if n := t.actions(); n > 1 {
		return c.errorf(at, "a turn does one thing: sh, write, patch, call, calls, error, drop or stall (use calls for several tool calls at once)")
	} else if n == 0 && t.Text == "" {
		return c.errorf(at, "the turn does nothing: give it sh, write, patch, call, calls, text, error, drop or stall")
	}
	if t.Text != "" && t.fails() {
		return c.errorf(at, "text can't go with error, drop or stall")
	}
	switch {
	case t.Repeat < 0, t.Times < 0, t.Delay < 0, t.Stall < 0:
		return c.errorf(at, "repeat, times, delay and stall can't be negative")
	case t.Repeat > 10000:
		return c.errorf(at+".repeat", "repeat is at most 10000")
	case t.Times > 0 && !t.fails():
		return c.errorf(at+".times", "times goes with error, drop or stall (to play a turn again, use repeat)")
	case t.fails() && (t.Expect != "" || t.Repeat > 0):
		return c.errorf(at, "error, drop and stall go without expect and repeat (use times)")
	case t.Drop != "" && t.Drop != "before" && t.Drop != "middle":
		return c.errorf(at+".drop", "drop is \"before\" or \"middle\", not %q", t.Drop)
	case len(t.Else) > 0 && t.Expect == "":
		return c.errorf(at+".else", "else needs expect")
	case t.Tool != "" && t.Sh == "" && t.Write == nil && t.Patch == "":
		return c.errorf(at+".tool", "tool chooses the tool of sh, write or patch")
	case t.Error != nil && (t.Error.Status < 400 || t.Error.Status > 599):
		return c.errorf(at+".error", "error needs a status from 400 to 599, not %d", t.Error.Status)
	case t.Write != nil && t.Write.Path == "":
		return c.errorf(at+".write", "write needs a path")
	case t.Call != nil && t.Call.Tool == "":
		return c.errorf(at+".call", "call needs a tool")
	case t.Call != nil && t.Call.Args != nil && t.Call.Input != "":
		return c.errorf(at+".call", "call has either args or input")
	}
	if t.fails() && t.Times == 0 {
		t.Times = 1
	}
	t.i = 1
	before := slices.Clone(*vars)
	if t.Expect != "" {
		re, err := regexp.Compile(t.Expect)
		if err != nil {
			return c.errorf(at+".expect", "expect: %v", err)
		}
		t.expect = re
		for _, n := range re.SubexpNames() {
			if n != "" {
				*vars = append(*vars, n)
			}
		}
	}
	if err := c.variables(at, t, *vars); err != nil {
		return err
	}
	for i := range t.Calls {
		if err := c.part(fmt.Sprintf("%s.calls[%d]", at, i), &t.Calls[i], vars); err != nil {
			return err
		}
	}
	if len(t.Else) > 0 {
		alt, err := c.sequence(at+".else", t.Else, before)
		if err != nil {
			return err
		}
		t.Else = alt
	}
	return nil
}

// part checks one entry of calls.
func (c *checker) part(at string, t *Turn, vars *[]string) error {
	if len(t.Calls) > 0 || t.fails() || t.Text != "" || t.Expect != "" || t.Repeat > 0 || t.Delay > 0 {
		return c.errorf(at, "an entry of calls is one of sh, write, patch and call, with tool where wanted")
	}
	t.line = c.line(at)
	return c.turn(at, t, vars)
}

var variable = regexp.MustCompile(`\{\{([a-z_][a-z0-9_]*)\}\}`)

// variables refuses names that nothing sets: a typing error would otherwise reach the agent's shell.
func (c *checker) variables(at string, t *Turn, vars []string) error {
	texts := []string{t.Text, t.Sh, t.Patch}
	if t.Write != nil {
		texts = append(texts, t.Write.Path, t.Write.Content)
	}
	if t.Call != nil {
		texts = append(texts, t.Call.Input)
		eachString(t.Call.Args, func(s string) string { texts = append(texts, s); return s })
	}
	for _, text := range texts {
		for _, m := range variable.FindAllStringSubmatch(text, -1) {
			if m[1] != "last_output" && m[1] != "i" && !slices.Contains(vars, m[1]) {
				return c.errorf(at, "unknown variable {{%s}}: there are last_output, i, and the named groups of expect (%s); write {{ %s }} with spaces for the text itself",
					m[1], strings.Join(vars, ", "), m[1])
			}
		}
	}
	return nil
}

// eachString maps every string in a YAML value; maps are copied.
func eachString(v any, f func(string) string) any {
	switch v := v.(type) {
	case string:
		return f(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = eachString(v[i], f)
		}
		return out
	case map[string]any:
		if v == nil {
			return v
		}
		out := make(map[string]any, len(v))
		for k := range v {
			out[k] = eachString(v[k], f)
		}
		return out
	}
	return v
}

// acts tells whether the turn calls a tool.
func (t *Turn) acts() bool {
	return t.Sh != "" || t.Write != nil || t.Patch != "" || t.Call != nil || len(t.Calls) > 0
}

// fails tells whether the turn leaves no trace in the client's history.
func (t *Turn) fails() bool { return t.Error != nil || t.Drop != "" || t.Stall != 0 }

func (t *Turn) actions() int {
	n := 0
	for _, is := range []bool{t.Sh != "", t.Write != nil, t.Patch != "", t.Call != nil, len(t.Calls) > 0,
		t.Error != nil, t.Drop != "", t.Stall != 0} {
		if is {
			n++
		}
	}
	return n
}

// nearest returns the name that is at most two edits away from what was written, or "".
func nearest(s string, names []string) string {
	best, at := "", 3
	for _, n := range names {
		if d := distance(s, n); d < at {
			best, at = n, d
		}
	}
	return best
}

func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diag, row[j] = row[j], min(diag+cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
