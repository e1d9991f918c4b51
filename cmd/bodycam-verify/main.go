// Command bodycam-verify verifies a ledger, or a bundle disclosed from one, without the network and without writing
// anything. It is small on purpose: this file, package ledger and the packages below it are all there is to read.
//
// See -h for its use and exit statuses.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/proof"
	"github.com/bodycam-dev/bodycam/ledger/regular"
)

const usage = `Usage: bodycam-verify [flags] PATH… [flags]

PATH is a run directory or its ledger directory, or a bundle file; or a proof of equivocation, that somebody vouched for
two histories of one log. Several runs or bundles are verified together: each by itself, and what their recorders signed of
work that one handed to another (docs/DELEGATION.md).

Whoever is judged doesn't choose the yardstick: give at least one root of trust, -log, -key, -checkpoint,
-witness, -roots or -manifest. Without one the verdict is at best "incomplete"; -self settles for consistency.

FLAGS
  -log ID            identity that the log must have, 64 hexadecimal digits
  -key KEY           signing key of the recorder; repeat for several. KEY is a verifier key (name+id+base64),
                     or ed25519:BASE64, or ml-dsa-44:BASE64, or a file of them, one a line ("bodycam keys export")
  -checkpoint FILE   head of the log known from elsewhere (a signed note); repeat for several
  -witness KEY       verifier key of a witness that must have cosigned; repeat for several
  -quorum N          how many of the witnesses are enough (default: all)
  -roots FILE        your own roots of trust for the log's anchors, and a policy over them (docs/ANCHORS.md)
  -manifest FILE     the operator's signed roots, with -manifest-digest
  -manifest-digest H SHA-256 that the operator's manifest must have, from elsewhere than the manifest
  -policy EXPR       who must vouch, in place of the manifest's policy: "evm and (2 of [w1, w2, w3] or tsa)"
  -self              take the log's own keys as the root: finds damage, not forgery
  -identity FILE     age identities that open payloads; without them only commitments are verified
  -payloads          also check that the stored payloads are all there
  -require CLAIMS    claims that must be verified, separated by commas, besides integrity, order, identity and,
                     for a whole log, coverage; others are existed_by and content
  -workers N         epochs verified at a time (default: one per processor)
  -json              print the report as JSON: verdict, first_bad, claims

EXIT STATUS
  0  verified; of a proof of equivocation: somebody is convicted
  1  tampered; of a proof of equivocation: it proves nothing
  2  wrong use
  3  the input could not be read
  4  incomplete: nothing false was found, but records, keys or a root of trust are missing

EXAMPLES
  bodycam-verify -log 94da3c21… runs/2026-11-30
  bodycam-verify -key ed25519:iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w= -json dispute.bundle
`

// The exit statuses.
const (
	exitVerified   = 0
	exitTampered   = 1
	exitUsage      = 2
	exitUnreadable = 3
	exitIncomplete = 4
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// settings are the command line.
type settings struct {
	opts     ledger.VerifyOptions
	keys     list
	heads    list
	notes    []*checkpoint.Note // of heads
	witness  list
	log      string
	identity string
	require  string
	roots    string
	operator string
	digest   string
	policy   string
	manifest *proof.Manifest
	json     bool
	paths    []string
	path     string // that is being verified
}

// outcome is the report, with what the anchors come to.
type outcome struct {
	*ledger.Report
	Anchors *proof.Judgement `json:"anchors,omitempty"`
	// Equivocations are two histories of a log that somebody vouched for.
	Equivocations []*proof.Conviction `json:"equivocations,omitempty"`
}

type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func run(args []string, stdout, stderr io.Writer) int {
	s, err := parse(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return exitVerified
	}
	if err != nil {
		fmt.Fprintf(stderr, "bodycam-verify: %v\nTry bodycam-verify -h.\n", err)
		return exitUsage
	}
	if b, err := regular.ReadNamed(s.path); err == nil && len(s.paths) == 1 && proof.IsEquivocation(s.path, b) {
		return s.equivocation(b, stdout, stderr)
	}
	verdict, report, text, err := s.report(context.Background()) // signals end the process: it only reads
	if err != nil {
		fmt.Fprintf(stderr, "bodycam-verify: %v\n", err)
		return exitUnreadable
	}
	if s.json {
		err = encode(stdout, report)
	} else {
		err = text(stdout)
	}
	if err != nil {
		fmt.Fprintf(stderr, "bodycam-verify: writing the report: %v\n", err)
		return exitUnreadable
	}
	switch verdict {
	case ledger.Verified:
		return exitVerified
	case ledger.Tampered:
		return exitTampered
	}
	return exitIncomplete
}

// report verifies what the paths hold: the verdict, the report as JSON has it, and for people.
func (s *settings) report(ctx context.Context) (ledger.Verdict, any, func(io.Writer) error, error) {
	if len(s.paths) > 1 {
		t, err := s.together(ctx)
		if err != nil {
			return "", nil, nil, err
		}
		return t.Verdict, t, t.print, nil
	}
	r, err := s.verify(ctx)
	if err != nil {
		return "", nil, nil, err
	}
	return r.Verdict, r, func(w io.Writer) error { return print(w, r) }, nil
}

func encode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// equivocation judges a file that is a proof of one.
func (s *settings) equivocation(b []byte, stdout, stderr io.Writer) int {
	q, err := proof.ParseEquivocation(b)
	if err != nil {
		fmt.Fprintf(stderr, "bodycam-verify: %s proves nothing: %v\n", s.path, err)
		return exitTampered
	}
	c := q.Judge(s.opts.Keys, s.manifest)
	if s.json {
		err = encode(stdout, c)
	} else {
		_, err = io.WriteString(stdout, c.Text())
	}
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "bodycam-verify: writing the report: %v\n", err)
		return exitUnreadable
	case c.Status != ledger.StatusVerified:
		return exitIncomplete
	}
	return exitVerified
}

func parse(args []string, stdout io.Writer) (*settings, error) {
	s := &settings{}
	f := flag.NewFlagSet("bodycam-verify", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&s.log, "log", "", "")
	f.Var(&s.keys, "key", "")
	f.Var(&s.heads, "checkpoint", "")
	f.Var(&s.witness, "witness", "")
	f.IntVar(&s.opts.Quorum, "quorum", 0, "")
	f.StringVar(&s.roots, "roots", "", "")
	f.StringVar(&s.operator, "manifest", "", "")
	f.StringVar(&s.digest, "manifest-digest", "", "")
	f.StringVar(&s.policy, "policy", "", "")
	f.BoolVar(&s.opts.Self, "self", false, "")
	f.StringVar(&s.identity, "identity", "", "")
	f.BoolVar(&s.opts.Payloads, "payloads", false, "")
	f.StringVar(&s.require, "require", "", "")
	f.IntVar(&s.opts.Workers, "workers", 0, "")
	f.BoolVar(&s.json, "json", false, "")
	// Flags may stand after paths too; what follows "--" is paths.
	var names []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, names = args[:i], args[i+1:]
	}
	for len(args) > 0 {
		if err := f.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				fmt.Fprint(stdout, usage)
			}
			return nil, err
		}
		if args = f.Args(); len(args) > 0 {
			s.paths, args = append(s.paths, args[0]), args[1:]
		}
	}
	if s.paths = append(s.paths, names...); len(s.paths) == 0 {
		return nil, errors.New("want one path, or several")
	}
	s.path = s.paths[0]
	if len(s.paths) > 1 && (s.log != "" || len(s.heads) > 0) {
		return nil, errors.New("-log and -checkpoint are about one log: verify that one alone")
	}
	return s, s.trust()
}

// trust reads what the verifier brings along.
func (s *settings) trust() error {
	for i, k := range s.witness {
		if slices.Contains(s.witness[:i], k) {
			return fmt.Errorf("-witness %s stands twice, and would count twice", k)
		}
	}
	if s.log != "" {
		b, err := hex.DecodeString(s.log)
		if err != nil || len(b) != 32 {
			return fmt.Errorf("-log %s: want 64 hexadecimal digits", s.log)
		}
		s.opts.LogID = (*ledger.Hash)(b)
	}
	for _, k := range s.keys {
		keys, err := publicKeys(k)
		if err != nil {
			return fmt.Errorf("-key: %w", err)
		}
		s.opts.Keys = append(s.opts.Keys, keys...)
	}
	for _, k := range s.witness {
		key, err := checkpoint.ParseKey(k)
		if err != nil {
			return fmt.Errorf("-witness: %w", err)
		}
		s.opts.Witnesses = append(s.opts.Witnesses, key)
	}
	if s.opts.Quorum == 0 {
		s.opts.Quorum = len(s.opts.Witnesses)
	}
	if s.opts.Quorum < 0 || s.opts.Quorum > len(s.opts.Witnesses) {
		return fmt.Errorf("-quorum %d of %d witnesses", s.opts.Quorum, len(s.opts.Witnesses))
	}
	for _, name := range s.heads {
		b, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("-checkpoint: %w", err)
		}
		n, err := checkpoint.Parse(b)
		if err != nil {
			return fmt.Errorf("-checkpoint %s: %w", name, err)
		}
		s.notes = append(s.notes, n)
		s.opts.Pinned = append(s.opts.Pinned, ledger.Pinned{Checkpoint: n.Checkpoint, Source: "the checkpoint in " + name})
	}
	if s.require != "" {
		s.opts.Require = strings.Split(s.require, ",")
		for _, name := range s.opts.Require {
			if !ledger.IsClaim(name) {
				return fmt.Errorf("-require: there is no claim %q", name)
			}
		}
	}
	if err := s.gather(); err != nil {
		return err
	}
	if s.identity == "" {
		return nil
	}
	f, err := os.Open(s.identity)
	if err != nil {
		return fmt.Errorf("-identity: %w", err)
	}
	defer f.Close()
	if s.opts.Identities, err = age.ParseIdentities(f); err != nil {
		return fmt.Errorf("-identity %s: %w", s.identity, err)
	}
	return nil
}

// publicKeys reads a key, or a file of keys, one a line, as "bodycam keys export" writes it.
func publicKeys(text string) ([]ledger.PublicKey, error) {
	key, err := proof.ParsePublicKey(text)
	if err == nil {
		return []ledger.PublicKey{key}, nil
	}
	b, ferr := os.ReadFile(text)
	if errors.Is(ferr, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w, nor is there a file of that name", err)
	}
	if ferr != nil {
		return nil, ferr
	}
	var out []ledger.PublicKey
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		key, err := proof.ParsePublicKey(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", text, n, err)
		}
		out = append(out, key)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no public key", text)
	}
	return out, nil
}

// gather reads the roots of trust for anchors.
func (s *settings) gather() error {
	var files [2][]byte
	for i, name := range []string{s.roots, s.operator} {
		if name == "" {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("roots of trust: %w", err)
		}
		files[i] = b
	}
	var err error
	if s.manifest, err = proof.Gather(files[0], files[1], s.digest, s.policy); err != nil {
		return fmt.Errorf("roots of trust: %w", err)
	}
	if s.manifest == nil {
		s.manifest = &proof.Manifest{}
	}
	s.opts.Keys = append(s.opts.Keys, s.manifest.PublicKeys()...)
	return nil
}

// verify finds out what the path holds and verifies it.
func (s *settings) verify(ctx context.Context) (*outcome, error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		b, err := regular.ReadNamed(s.path)
		if err != nil {
			return nil, err
		}
		if !ledger.IsBundle(b) {
			return nil, fmt.Errorf("%s is no bundle", s.path)
		}
		bundle, err := ledger.ParseBundle(b)
		if err != nil {
			return &outcome{Report: ledger.Unreadable(err)}, nil
		}
		j := proof.JudgeBundle(bundle, s.manifest)
		s.opts.Pinned = append(s.opts.Pinned, j.Pinned()...)
		out := s.conclude(bundle.Verify(s.opts.Trust, s.opts.Require...), j, bundle.Genesis, bundle.Checkpoint.Size)
		return out, s.convict(out, bundle.Genesis, proof.BundleStatements(bundle), nil)
	}
	root, err := runOf(s.path)
	if err != nil {
		return nil, err
	}
	return s.verifyRun(ctx, regular.FS(root))
}

// runOf is the directory that holds a log's folders: of a run, or of the ledger directory that was named.
func runOf(path string) (string, error) {
	if _, err := os.Stat(filepath.Join(path, "ledger", "genesis")); !errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	if _, err := os.Stat(filepath.Join(path, "genesis")); err != nil {
		return path, nil
	}
	abs, err := filepath.Abs(path)
	if err == nil && filepath.Base(abs) != "ledger" {
		err = fmt.Errorf("%s: a ledger directory must be named \"ledger\"", path)
	}
	return filepath.Dir(abs), err
}

func (s *settings) verifyRun(ctx context.Context, run fs.FS) (*outcome, error) {
	anchors, err := proof.Read(run)
	if err != nil {
		return nil, err
	}
	var gen *ledger.Genesis
	var j *proof.Judgement
	// A genesis that is missing or damaged is for ledger.Verify to judge.
	if b, err := fs.ReadFile(run, "ledger/genesis"); err == nil {
		if gen, err = ledger.ParseGenesis(b); err == nil {
			j = proof.Judge(gen.Origin(), anchors, s.manifest)
			s.opts.Pinned = append(s.opts.Pinned, j.Pinned()...)
		}
	}
	r, err := ledger.Verify(ctx, run, s.opts)
	if err != nil {
		return nil, err
	}
	out := s.conclude(r, j, gen, r.Epochs)
	own, list, history, err := proof.Statements(run)
	if err != nil || own == nil {
		return out, nil // a log that can't be opened has been judged
	}
	return out, s.convict(out, own, list, history)
}

// convict looks for two histories of the log that its keys, or others whom the verifier knows, vouched for.
func (s *settings) convict(out *outcome, gen *ledger.Genesis, list []*proof.Evidence, h *proof.History) error {
	for _, n := range s.notes {
		list = append(list, &proof.Evidence{Kind: proof.KindCheckpoint, Note: n})
	}
	var histories []*proof.History
	if h != nil {
		histories = append(histories, h)
	}
	for _, path := range s.paths {
		if path == s.path {
			continue
		}
		// Another log's statements are no business of this one's, and what can't be read is judged by itself.
		if own, more, h, err := statements(path); err == nil && own != nil && own.Origin() == gen.Origin() {
			if list = append(list, more...); h != nil {
				histories = append(histories, h)
			}
		}
	}
	found, err := proof.FindEquivocations(list, histories, s.opts.Keys, gen)
	if err != nil {
		return err
	}
	for _, q := range found {
		c := q.Judge(s.opts.Keys, s.manifest)
		out.Equivocations = append(out.Equivocations, c)
		if c.Status == ledger.StatusVerified && c.Log == gen.Origin() {
			out.Verdict = ledger.Tampered
		}
	}
	return nil
}

// conclude lets the anchors weigh in, where there are any or they are asked for.
func (s *settings) conclude(r *ledger.Report, j *proof.Judgement, gen *ledger.Genesis, epochs uint64) *outcome {
	if j == nil || len(j.Attestations) == 0 && len(s.manifest.Roots) == 0 {
		return &outcome{Report: r}
	}
	j.Conclude(epochs, time.Unix(0, gen.Created), gen.AnchorEvery)
	r.Verdict = j.Lower(r.Verdict)
	return &outcome{Report: r, Anchors: j}
}

// print writes the report for people.
func print(w io.Writer, r *outcome) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.Verdict)
	if f := r.FirstBad; f != nil {
		place := "from record"
		if f.Exact {
			place = "record"
		}
		fmt.Fprintf(&b, "first bad: %s %d, epoch %d: %s\n\n", place, f.Seq, f.Epoch, f.What)
	}
	r.Claims.Each(func(name string, c *ledger.Claim) {
		fmt.Fprintf(&b, "%-11s %s\n", name, c.Status)
		for _, s := range c.Reasons {
			fmt.Fprintf(&b, "            - %s\n", s)
		}
		for _, s := range c.RestsOn {
			fmt.Fprintf(&b, "            rests on %s\n", s)
		}
	})
	if j := r.Anchors; j != nil {
		fmt.Fprintf(&b, "%-11s %s\n            %s\n", "anchors", j.Status, j.Summary())
		for _, s := range j.Reasons() {
			fmt.Fprintf(&b, "            - %s\n", s)
		}
	}
	for i, c := range r.Equivocations {
		told, more := proof.Alike(r.Equivocations, i)
		if told {
			continue
		}
		b.WriteString(c.Text())
		if more > 0 {
			fmt.Fprintf(&b, "  and %d more proofs of the same (-json)\n", more)
		}
	}
	fmt.Fprintf(&b, "\nlog %s\nrecorder %q, profile %s, epochs: %d, records: %d, events in batches: %d\n",
		r.Origin, r.Recorder, r.Profile, r.Epochs, r.Records, r.Events)
	_, err := io.WriteString(w, b.String())
	return err
}
