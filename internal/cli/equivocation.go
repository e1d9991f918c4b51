package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/proof"
	"github.com/bodycam-dev/bodycam/ledger/regular"
	"github.com/spf13/cobra"
)

// keptEquivocation is a proof of equivocation that a verification came upon.
type keptEquivocation struct {
	File string `json:"file,omitempty"` // where it was kept; "" where nobody asked for that
	*proof.Conviction
}

// keepEquivocations puts proofs into a folder, each once, and judges them.
func keepEquivocations(dir string, list []*proof.Equivocation, keys []ledger.PublicKey, m *proof.Manifest) ([]keptEquivocation, error) {
	var out []keptEquivocation
	for _, q := range list {
		k := keptEquivocation{Conviction: q.Judge(keys, m)}
		if dir != "" {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, environment(err)
			}
			k.File = filepath.Join(dir, q.Name())
			if err := anchor.Replace(k.File, q.Append(nil)); err != nil {
				return nil, environment(fmt.Errorf("keeping a proof of equivocation: %w", err))
			}
		}
		out = append(out, k)
	}
	return out, nil
}

// line is a proof in a line, for people.
func (k keptEquivocation) line() string {
	where := "keep the proof with --equivocation DIR"
	if k.File != "" {
		where = "the proof is in " + bodycam.Printable(k.File)
	}
	if k.Status != ledger.StatusVerified {
		return "two histories of " + bodycam.Printable(k.Log) + ", by nobody whom you have a key of; " + where
	}
	return fmt.Sprintf("two histories of %s, both vouched for by %s; %s", bodycam.Printable(k.Log), bodycam.Printable(k.Accused[0].Who), where)
}

// equivocations looks among all that is known of the log for statements that contradict each other. Whoever signed two
// histories has a log that can't be called verified.
func (v *verification) equivocations(f *verifyFlags, keys []ledger.PublicKey) error {
	paths := append([]string{v.Path}, f.pins...)
	for _, other := range f.together {
		// Another log's statements are no business of this one's, and what can't be read is judged by itself.
		if gen, _, _, err := statementsIn(other); err == nil && gen != nil && gen.Origin() == v.Origin && other != v.Path {
			paths = append(paths, other)
		}
	}
	found, err := equivocationsIn(paths, keys, f.notes[v.Path]...)
	if err != nil {
		return nil // what can't be read was judged
	}
	m, err := f.anchors.manifest()
	if err != nil {
		return err
	}
	if v.Equivocations, err = keepEquivocations(f.equivocation, found, keys, m); err != nil {
		return err
	}
	for _, k := range v.Equivocations {
		if k.Status == ledger.StatusVerified && k.Log == v.Origin {
			v.Verdict = ledger.Tampered
		}
	}
	return nil
}

// verifyEquivocation judges a file that is a proof of equivocation.
func (f *verifyFlags) verifyEquivocation(s *streams, path string, b []byte) error {
	trust, _, err := f.trust()
	if err != nil {
		return err
	}
	m, err := f.anchors.manifest()
	if err != nil {
		return err
	}
	q, err := proof.ParseEquivocation(b)
	if err != nil {
		return &statusError{status: ExitGate, err: fmt.Errorf("%s proves nothing: %w", path, err)}
	}
	c := q.Judge(trust.Keys, m)
	if err := result(s, f.json, c, nil); err != nil {
		return err
	}
	if c.Status != ledger.StatusVerified {
		return &statusError{status: ExitInconclusive}
	}
	return nil
}

func anchorEquivocation(s *streams) *cobra.Command {
	var dir string
	var asJSON bool
	var trust anchorTrust
	cmd := &cobra.Command{
		Use:   "equivocation A B… --out DIR",
		Short: "Make a proof of two histories of one log",
		Long: `Look among what is given for two statements on one log that contradict each other: two heads of one size, or a head that
another history doesn't lead to. Each of A and B is a run or a mirror of it, a bundle, a checkpoint (a signed note), or an
anchor's .proof file. What is found goes into DIR: files that convict whoever signed or anchored both, before anybody:
"bodycam verify FILE" checks them without a network. The format is in docs/FORMAT.md.` +
			exits("0  nothing contradicts", "1  two histories: the proof is in DIR", "2  usage", "3  the input could not be read"),
		Example: "  bodycam anchor equivocation RUN checkpoint.txt --out evidence\n  bodycam verify evidence/1f2e….equivocation",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if dir == "" {
				return usage("want --out")
			}
			m, err := trust.manifest()
			if err != nil {
				return err
			}
			var keys []ledger.PublicKey
			if m != nil {
				keys = m.PublicKeys()
			}
			found, err := equivocationsIn(args, keys)
			if err != nil {
				return err
			}
			kept, err := keepEquivocations(dir, found, keys, m)
			if err != nil {
				return err
			}
			if asJSON {
				if kept == nil {
					kept = []keptEquivocation{}
				}
				err = printJSON(s, kept)
			} else {
				for _, k := range kept {
					if _, err = fmt.Fprintf(s.out, "%s\n%s\n", bodycam.Printable(k.File), k.Text()); err != nil {
						break
					}
				}
				if len(kept) == 0 {
					_, err = fmt.Fprintln(s.out, "nothing of this contradicts")
				}
			}
			if err == nil && len(kept) > 0 {
				err = &statusError{status: ExitGate}
			}
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&dir, "out", "o", "", "folder for the proofs")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	trust.add(fl)
	return cmd
}

// equivocationsIn looks among runs, bundles, checkpoints and proofs.
func equivocationsIn(paths []string, keys []ledger.PublicKey, list ...*proof.Evidence) ([]*proof.Equivocation, error) {
	var gens []*ledger.Genesis
	var histories []*proof.History
	for _, path := range paths {
		gen, more, h, err := statementsIn(path)
		if err != nil {
			return nil, environment(fmt.Errorf("reading %s: %w", path, err))
		}
		if gen != nil {
			gens = append(gens, gen)
		}
		if h != nil {
			histories = append(histories, h)
		}
		list = append(list, more...)
	}
	found, err := proof.FindEquivocations(list, histories, keys, gens...)
	if err != nil {
		return nil, environment(err)
	}
	return found, nil
}

func statementsIn(path string) (*ledger.Genesis, []*proof.Evidence, *proof.History, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, nil, err
	}
	if info.IsDir() {
		return proof.Statements(regular.FS(path))
	}
	b, err := regular.ReadNamed(path)
	if err != nil {
		return nil, nil, nil, err
	}
	if ledger.IsBundle(b) {
		bundle, err := ledger.ParseBundle(b)
		if err != nil {
			return nil, nil, nil, err
		}
		return bundle.Genesis, proof.BundleStatements(bundle), nil, nil
	}
	if e, err := proof.ParseEvidence(b); err == nil {
		return nil, []*proof.Evidence{e}, nil, nil
	}
	n, err := checkpoint.Parse(b)
	if err != nil {
		return nil, nil, nil, errors.New("it is no run, bundle, checkpoint or proof of an anchor")
	}
	return nil, []*proof.Evidence{{Kind: proof.KindCheckpoint, Note: n}}, nil, nil
}
