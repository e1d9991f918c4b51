package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/harness/transcript"
)

// replay runs the commands of a transcript again, in its order, and writes the files that it wrote whole.
type replay struct {
	cfg *Config
	out *printer
}

// sessions are formats whose harness keeps one shell for all commands, so that a cd lasts.
var sessions = map[transcript.Format]bool{transcript.SWEAgent: true, transcript.OpenHands: true, transcript.ATIF: true}

func (p *replay) run(ctx context.Context) error {
	data, err := os.ReadFile(p.cfg.Transcript)
	if err != nil {
		return fmt.Errorf("read transcript: %w", err)
	}
	format, rows, err := transcript.Parse(data, transcript.Format(p.cfg.Format), time.Now(), transcript.Options{MaxText: 8 << 20})
	if err != nil {
		return fmt.Errorf("read transcript %s: %w", p.cfg.Transcript, err)
	}
	keep := sessions[format]
	if p.cfg.KeepDir != nil {
		keep = *p.cfg.KeepDir
	}
	sh := &shell{argv: p.cfg.Shell, dir: p.cfg.Workdir, timeout: seconds(p.cfg.CommandSeconds), limit: p.cfg.OutputBytes, keepDir: keep}
	p.out.row(bodycam.RowMeta, fmt.Sprintf("replay of a %s transcript", format))
	n, skipped := 0, 0
	for i := range rows {
		r := &rows[i]
		if r.Kind != bodycam.RowTool {
			continue
		}
		if p.cfg.MaxCommands > 0 && n == p.cfg.MaxCommands {
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("stopped after %d commands: %w", n, ctx.Err())
		}
		done, err := p.row(ctx, sh, r)
		if err != nil {
			return err
		}
		if done {
			n++
		} else {
			skipped++
		}
	}
	if n == 0 {
		return fmt.Errorf("the %s transcript has no command to run", format)
	}
	p.out.row(bodycam.RowMeta, fmt.Sprintf("%d commands replayed, %d other tool calls left out", n, skipped))
	return nil
}

// row replays one row; done is false for a call of a tool that can't be played again.
func (p *replay) row(ctx context.Context, sh *shell, r *bodycam.Row) (done bool, err error) {
	id := fmt.Sprintf("%d:%s", r.Index, r.CallID)
	start := transcript.RowLine{Event: "start", Kind: bodycam.RowTool, CallID: id, Tool: r.Tool, Command: r.Command, Args: r.Args, Files: r.Files, Cut: r.Cut}
	end := func(out string, failed bool) {
		p.out.print(start)
		p.out.print(transcript.RowLine{Event: "end", CallID: id, Output: out, Failed: failed})
	}
	if r.Command == "" {
		path, content, ok := wholeFile(r)
		if !ok {
			end("not replayed: the transcript has no command for this tool", true)
			return false, nil
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(sh.dir, path)
		}
		p.out.print(start)
		l := transcript.RowLine{Event: "end", CallID: id, Output: "written"}
		if err := writeFile(path, content); err != nil {
			l.Output, l.Failed = err.Error(), true
		}
		p.out.print(l)
		return true, nil
	}
	p.out.print(start)
	res, err := sh.run(ctx, r.Command)
	if err != nil {
		p.out.print(transcript.RowLine{Event: "end", CallID: id, Output: err.Error(), Failed: true})
		return true, nil
	}
	p.out.print(res.line(id))
	return true, nil
}

// wholeFile reads the call of a tool that writes a file as a whole.
func wholeFile(r *bodycam.Row) (path, content string, ok bool) {
	if r.Cut || len(r.Files) != 1 {
		return "", "", false
	}
	var args struct {
		Command  string  `json:"command"`
		Content  *string `json:"content"`
		FileText *string `json:"file_text"`
	}
	if json.Unmarshal([]byte(r.Args), &args) != nil {
		return addedFile(r)
	}
	switch {
	case args.FileText != nil && (args.Command == "" || args.Command == "create"):
		return r.Files[0], *args.FileText, true
	case args.Content != nil:
		return r.Files[0], *args.Content, true
	}
	return addedFile(r)
}

// addedFile reads a patch that does nothing but add one file.
func addedFile(r *bodycam.Row) (path, content string, ok bool) {
	patch := r.Args
	var s string
	if json.Unmarshal([]byte(patch), &s) == nil {
		patch = s
	}
	lines := strings.Split(strings.TrimSpace(patch), "\n")
	if len(lines) < 3 || lines[0] != "*** Begin Patch" || lines[1] != "*** Add File: "+r.Files[0] || lines[len(lines)-1] != "*** End Patch" {
		return "", "", false
	}
	var b strings.Builder
	for _, l := range lines[2 : len(lines)-1] {
		text, ok := strings.CutPrefix(l, "+")
		if !ok {
			return "", "", false
		}
		b.WriteString(text + "\n")
	}
	return r.Files[0], b.String(), true
}

func writeFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644)
}
