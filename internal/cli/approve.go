package cli

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/anchor/config"
	"github.com/bodycam-dev/bodycam/internal/approval"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// approversFile is where this machine keeps whose approvals count: verifier keys, one a line.
const approversFile = "approvers.txt"

// approverFlags say whose approvals count.
type approverFlags struct{ files []string }

func (f *approverFlags) add(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.files, "approver", nil, "file of approvers' verifier keys, one a line; repeatable (default: "+approversFile+" among this machine's keys)")
}

// keys are the approvers' keys. That this machine has none is no error.
func (f *approverFlags) keys(ring *ringFlags) ([]checkpoint.Key, error) {
	files := f.files
	if len(files) == 0 {
		dir, err := ring.directory()
		if err != nil {
			return nil, err
		}
		files = []string{filepath.Join(dir, approversFile)}
	}
	var out []checkpoint.Key
	for _, name := range files {
		b, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) && len(f.files) == 0 {
			return nil, nil
		}
		if err != nil {
			return nil, usage("--approver: %w", err)
		}
		sc := bufio.NewScanner(bytes.NewReader(b))
		for line := 1; sc.Scan(); line++ {
			text := strings.TrimSpace(sc.Text())
			if text == "" || text[0] == '#' {
				continue
			}
			k, err := checkpoint.ParseKey(text)
			if err != nil {
				return nil, usage("%s:%d: %w", name, line, err)
			}
			out = append(out, k)
		}
	}
	return out, nil
}

// approvals are a run's approvals and the delegations that its actions name, nil where its ledger can't be read here.
func (f *approverFlags) approvals(r *store.Run, ring *ringFlags) ([]approval.Item, error) {
	known, err := f.keys(ring)
	if err != nil || !r.HasLedger() {
		return nil, err
	}
	lr, err := r.Ledger()
	if err != nil {
		return nil, nil // its verification says so
	}
	defer lr.Close()
	items, err := approval.Read(lr, known)
	if err != nil {
		return nil, nil
	}
	return items, nil
}

// writeApprovals says what each is worth.
func writeApprovals(b *strings.Builder, items []approval.Item) {
	fmt.Fprintf(b, "  approvals and delegated calls: %s\n", approval.Summary(items))
	const most = 20
	for i := range items {
		it := &items[i]
		if i == most {
			fmt.Fprintf(b, "    and %d more (--json)\n", len(items)-most)
			return
		}
		fmt.Fprintf(b, "    %-9s %s\n", it.Status, bodycam.Printable(approvalLine(it)))
	}
}

func approvalLine(it *approval.Item) string {
	var s string
	if it.What == "approval" {
		s = fmt.Sprintf("record %d: %s by %s", it.Of, it.Decision, it.Who)
	} else {
		s = fmt.Sprintf("record %d: asked for by %s within %q", it.Of, it.Who, it.Scope)
	}
	if it.Time != 0 {
		s += time.Unix(0, it.Time).UTC().Format(" at 2006-01-02T15:04:05Z")
	}
	if it.Why != "" {
		s += ": " + it.Why
	}
	return s
}

func approveCommand(s *streams) *cobra.Command {
	var f ringFlags
	var record int64
	var decision, key, prompt string
	cmd := &cobra.Command{
		Use:   "approve RUN --record N --decision allow|deny --key FILE",
		Short: "Sign for a record of a run: an action, a delegation, a finding",
		Long: `Add a signed approval of a record to a run's ledger: who approved it or didn't, what he was shown, and when. It counts
as signed for whoever knows the approver's key ("bodycam verify --approver", a manifest's approvers, or ` + approversFile + `
among this machine's keys), and is asserted for anybody else. An approval that a transcript or a gateway reports without
such a signature is asserted.

Without --prompt what is shown is the record itself, as JSON.` + exits("0  recorded", "2  usage", "3  the ledger could not be extended"),
		Example: `  bodycam anchor key alice.key --type approver --name alice@example.org >> ~/.config/bodycam/keys/` + approversFile + `
  bodycam query RUN 'tool == "deploy"'
  bodycam approve RUN --record 17 --decision allow --key alice.key
  bodycam verify RUN`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if record < 0 || key == "" || decision != approval.Allow && decision != approval.Deny {
				return usage("want --record, --key, and --decision allow or deny")
			}
			k, signer, err := config.ReadKey(key)
			if err != nil {
				return usage("%w", err)
			}
			if k.Alg == checkpoint.Cosignature {
				return usage("%s is a witness's key: make one with `bodycam anchor key --type approver`", key)
			}
			r, err := f.open(args[0])
			if err != nil {
				return err
			}
			a, log, err := aboutRecord(r, uint64(record))
			if err != nil {
				return err
			}
			a.Decision, a.Time = decision, time.Now().UnixNano()
			if prompt != "" {
				a.Prompt = prompt
			}
			digest, err := hex.DecodeString(a.Digest)
			if err != nil {
				return environment(err)
			}
			if err := approval.Sign(&a.Approval, log, approval.OfRecord(a.Of, ledger.Hash(digest)), k, signer); err != nil {
				return usage("%w", err)
			}
			b, err := json.Marshal(a)
			if err != nil {
				return environment(err)
			}
			o, err := f.extend(r)
			if err != nil {
				return err
			}
			seq, err := r.Append(cmd.Context(), o, ledger.Entry{Type: store.RecordApproval, Kind: decision, Payload: b})
			if err != nil {
				return environment(err)
			}
			if err := f.noteRun(cmd.Context(), r); err != nil {
				return environment(err)
			}
			_, err = fmt.Fprintf(s.out, "record %d: %s of record %d by %s\n", seq, decision, a.Of, k.Name)
			return err
		},
	}
	fl := cmd.Flags()
	fl.Int64Var(&record, "record", -1, "`number` of the record in the ledger, as bodycam query prints it")
	fl.StringVar(&decision, "decision", "", "allow or deny")
	fl.StringVar(&key, "key", "", "`file` with the approver's private key")
	fl.StringVar(&prompt, "prompt", "", "what the approver was shown (default: the record)")
	f.add(fl)
	return cmd
}

// mostPrompt bounds what is kept of a record that was shown, in bytes.
const mostPrompt = 4 << 10

// aboutRecord begins an approval of a record, with the record as what is shown.
func aboutRecord(r *store.Run, seq uint64) (*approval.Record, ledger.Hash, error) {
	lr, err := r.Ledger()
	if err != nil {
		return nil, ledger.Hash{}, usage("%w", err)
	}
	defer lr.Close()
	gen := lr.Genesis()
	rec, err := lr.Record(seq)
	if err != nil {
		return nil, ledger.Hash{}, usage("%w", err)
	}
	a := &approval.Record{Of: seq, Digest: hex.EncodeToString(rec.Digest[:])}
	a.Prompt = store.TypeName(rec.Type) + " " + rec.Kind
	if rec.Form.Batch() {
		return a, gen.ID(), nil
	}
	b, err := lr.Payload(rec)
	if err != nil {
		return nil, ledger.Hash{}, environment(err)
	}
	if doc, err := store.PayloadJSON(rec.Type, b, false); err == nil && doc != nil {
		a.Prompt = string(doc[:min(len(doc), mostPrompt)])
	}
	a.Prompt = strings.ToValidUTF8(a.Prompt, "\uFFFD")
	return a, gen.ID(), nil
}
