package session

import (
	"encoding/json"
	"slices"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/link"
	"github.com/bodycam-dev/bodycam/internal/store"
)

// mostOutput bounds what of a tool's answer goes into an action, in bytes; the transcript has the whole.
const mostOutput = 16 << 10

// actions turns each tool call of the transcript into an action, with what the kernel saw of it as its effects, and
// seals it.
func (s *run) actions(r *store.Run, rows []bodycam.Row, res *link.Result) error {
	effects, err := observed(r, rows, res)
	if err != nil {
		return err
	}
	code := s.code()
	for i := range rows {
		row := &rows[i]
		if row.Kind != bodycam.RowTool {
			continue
		}
		a := &bodycam.Action{
			Intent:    bodycam.Intent{Tool: bodycam.Escape(row.Tool), Args: rawArgs(row)},
			Execution: bodycam.Execution{Command: bodycam.Escape(row.Command), Started: row.Arrived.UnixNano()},
			Context:   bodycam.Context{Environment: "sandbox", Sources: s.sources()},
			Code:      code,
		}
		a.Delegation = s.asked()
		if !row.Ended.IsZero() {
			a.Execution.Ended = row.Ended.UnixNano()
		}
		a.Effects = effects[row.Index]
		a.Effects.Exit = row.Exit
		a.Effects.Return = bodycam.Escape(row.Output[:min(len(row.Output), mostOutput)])
		if row.Failed {
			a.Effects.Error = "the transcript says that the call failed"
		}
		if err := s.w.Action(a); err != nil {
			return err
		}
	}
	return nil
}

// observed counts, for each row, the events that are linked to it, and lists their sequence numbers as ranges.
func observed(r *store.Run, rows []bodycam.Row, res *link.Result) (map[int]bodycam.Effects, error) {
	out := map[int]bodycam.Effects{}
	if len(res.Links) == 0 {
		return out, nil
	}
	ix := res.Index()
	err := r.Raw(func(e *bodycam.Event) error {
		row, _, confidence, ok := ix.RowOf(e.Proc, e.Boot)
		if !ok || row < 0 { // no row, or the harness's own doing
			return nil
		}
		f := out[row]
		if f.Observed == nil {
			f.Observed = map[string]uint64{}
		}
		f.Observed[e.Type.String()] += e.N()
		f.Confidence = max(f.Confidence, confidence)
		if n := len(f.Events); n > 0 && f.Events[n-1][1]+1 == e.Seq {
			f.Events[n-1][1] = e.Seq
		} else {
			f.Events = append(f.Events, [2]uint64{e.Seq, e.Seq})
		}
		out[row] = f
		return nil
	})
	return out, err
}

// rawArgs are a row's arguments as JSON: as they are where they are JSON, else as a string.
func rawArgs(row *bodycam.Row) json.RawMessage {
	args := row.Args
	if args == "" {
		return nil
	}
	if json.Valid([]byte(args)) {
		return json.RawMessage(args)
	}
	text, err := json.Marshal(bodycam.Escape(args))
	if err != nil {
		return nil // a string is always JSON
	}
	return text
}

// code pins what acted: the agent program, the task, its skills.
func (s *run) code() []bodycam.CodeDigest {
	info := s.w.Info()
	var out []bodycam.CodeDigest
	add := func(name, digest string) {
		if digest != "" {
			out = append(out, bodycam.CodeDigest{Name: name, SHA256: digest})
		}
	}
	add("agent:"+info.Agent.Harness, info.Agent.Digest)
	add("recorder", info.Tool.SHA256)
	for _, k := range info.Task.Skills {
		add("skill:"+k.Name, k.Digest)
	}
	return out
}

// sources are the contents that the agent was given.
func (s *run) sources() []bodycam.Source {
	out := []bodycam.Source{}
	if d := s.plan.Digests.Instruction; d != "" {
		out = append(out, bodycam.Source{Name: "instruction", SHA256: d})
	}
	for _, k := range s.plan.Skills {
		i := slices.IndexFunc(k.Files, func(f kind.ManifestFile) bool { return f.Path == "SKILL.md" })
		if i >= 0 {
			out = append(out, bodycam.Source{Name: "skill:" + k.Name, SHA256: k.Files[i].SHA256})
		}
	}
	return out
}
