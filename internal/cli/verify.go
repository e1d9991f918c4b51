package cli

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"filippo.io/age"
	"github.com/bodycam-dev/bodycam/internal/features"
	"github.com/bodycam-dev/bodycam/internal/keyring"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/proof"
	"github.com/bodycam-dev/bodycam/ledger/regular"
	"github.com/spf13/cobra"
)

type verifyFlags struct {
	json, host, noPayloads, show bool
	trustMirror                  bool
	keys, pins, require          []string
	log, mirror, identity, ca    string
	equivocation                 string
	anchors                      anchorTrust
	approvers                    approverFlags
	read                         map[string]*signedParts      // of delegations and approvals, by path
	held                         map[string][]ledger.Pinned   // heads of a run, by its path, that other runs' ledgers hold
	notes                        map[string][]*proof.Evidence // the same, as they were signed
	together                     []string                     // paths of all that is verified together
	ring                         ringFlags
}

func verifyCommand(s *streams) *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify RUN|BUNDLE… | verify --host [DIR]",
		Short: "Say whether a run's record is what was recorded",
		Long: `Verify the ledger of a run, or a bundle that was disclosed from one, and answer verified, tampered or incomplete as a
matrix of claims, each with what it rests on. The first bad record is named. Where keys that read the payloads are at
hand, payloads are opened and the run's working copies are held against what was sealed; where none is, nothing is known of
the copies and the verdict is incomplete. --no-payloads asks for the ledger alone.

Whoever is judged doesn't choose the yardstick: give a root of trust with --key, --log, --pin or --mirror. Where none is
given, this machine's own keys are the root, which is said: they show what others changed, not what this machine's
owner did. A log under keys that nobody vouches for is unverifiable, not tampered.

Anchors of the log are checked, without a network, against --roots (yours) or --manifest (the operator's, pinned by
--manifest-digest, which you have from elsewhere than the manifest). --policy says who must vouch; where it isn't met the
verdict is incomplete. What you have no root for is unverifiable. See docs/ANCHORS.md.

Several runs or bundles are verified together: each by itself, each against the checkpoints of it that the others hold, two
histories of one log against each other (neither is verified then), and what each signed of work that was handed over (see "bodycam delegate") against the ledgers of both sides. A side that left
it out is tampered with; without a valid signature a delegation is only asserted; of one run alone the other side isn't
shown, which is unverifiable and said. A person's approval is signed, by a key that you know as the approver's, or only asserted
(see "bodycam approve").

Where the log's keys, a witness or an account vouched for two histories, --equivocation DIR keeps a proof of that: a file that
convicts them before anybody, without this run. To verify such a file says whom: 0 where somebody is convicted.

With --host and no RUN, the log that this machine keeps of its runs is verified, and every run that was recorded here
and is gone, cut short or replaced is named. Each is looked for in DIR, under whatever name, and else where it was recorded.
A run can't be taken out of that log: one that was deleted stays named, and the answer tampered, unless DIR has a backup of it
or a mirror's copy. To be rid of what a run holds, erase it ("bodycam keys destroy RUN --all") and leave its folders ledger and payload.` +
			exits("0  verified", "1  tampered", "2  usage, or there is nothing to verify", "3  the input could not be read",
				"4  incomplete or unverifiable: nothing false was found, but records, keys or a root of trust are missing"),
		Example: `  bodycam verify runs/20260101-120000-ab
  bodycam verify dispute.bundle --key recorder.pub --json
  bodycam verify RUN --mirror https://mirror.example:8443 --pin checkpoint.txt
  bodycam verify RUN --roots roots.json --policy "evm and (2 of [w1, w2, w3] or tsa)"
  bodycam verify runs/A runs/B b.bundle
  bodycam verify --host runs`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			endAtSignals()
			if err := f.idle(); err != nil {
				return err
			}
			if len(args) == 0 && !f.host {
				return usage("want a run directory or a bundle")
			}
			if len(args) > 1 {
				return f.verifyTogether(cmd.Context(), s, args)
			}
			if f.host && (len(args) == 0 || !isRunOrBundle(args[0])) {
				return f.verifyHost(cmd.Context(), s, args)
			}
			if b, err := regular.ReadNamed(args[0]); err == nil && proof.IsEquivocation(args[0], b) {
				return f.verifyEquivocation(s, args[0], b)
			}
			v, err := f.verify(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if f.json {
				err = printJSON(s, v)
			} else {
				err = v.text(s)
			}
			if err != nil {
				return environment(err)
			}
			return v.status()
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.json, "json", false, "print JSON: verdict, first_bad, claims, and what was compared")
	fl.StringArrayVar(&f.keys, "key", nil, "file of the recorder's public signing keys (\"bodycam keys export\"); repeatable")
	fl.StringArrayVar(&f.pins, "pin", nil, "checkpoint file of this log that you have from elsewhere; repeatable")
	fl.StringVar(&f.log, "log", "", "identity that the log must have (64 hexadecimal digits)")
	fl.StringVar(&f.mirror, "mirror", "", "mirror to compare with: a directory or https://HOST:PORT")
	fl.BoolVar(&f.trustMirror, "trust-mirror", false, "who keeps the mirror isn't who is judged: take the times that a directory's checkpoints arrived")
	fl.StringVar(&f.ca, "mirror-ca", "", "file of certificates that the mirror's is checked against (default: the system's)")
	fl.BoolVar(&f.host, "host", false, "compare with the log that this machine keeps of its runs")
	fl.BoolVar(&f.noPayloads, "no-payloads", false, "structure and commitments only: open no payload")
	fl.StringVar(&f.identity, "identity", "", "file of age identities that open payloads (default: this machine's)")
	fl.StringArrayVar(&f.require, "require", nil, "claim that must be verified too: existed_by, content; repeatable")
	fl.BoolVar(&f.show, "show", false, "print what a bundle discloses")
	fl.StringVar(&f.equivocation, "equivocation", "", "folder for proofs that two histories of the log were vouched for, where there are any")
	f.anchors.add(fl)
	f.approvers.add(fl)
	f.ring.add(fl)
	return cmd
}

// idle refuses flags that would do nothing for want of another one, or because of it.
func (f *verifyFlags) idle() error {
	switch {
	case f.trustMirror && f.mirror == "":
		return usage("--trust-mirror needs --mirror")
	case f.ca != "" && f.mirror == "":
		return usage("--mirror-ca needs --mirror")
	case f.identity != "" && f.noPayloads:
		return usage("--identity opens payloads, and --no-payloads opens none: give one of the two")
	}
	return nil
}

func isRunOrBundle(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return err == nil
	}
	_, err = os.Stat(filepath.Join(path, "ledger", "genesis"))
	return err == nil
}

// mayRead tells a ledger that isn't there from one that may not be read.
func mayRead(path string) error {
	_, err := os.Stat(filepath.Join(path, "ledger", "genesis"))
	if errors.Is(err, fs.ErrPermission) {
		return environment(fmt.Errorf("reading the ledger of %s: %w", path, err))
	}
	return nil
}

// trust collects the roots of trust. The notes say in words where they come from.
func (f *verifyFlags) trust() (t ledger.Trust, notes []string, err error) {
	if f.log != "" {
		b, err := hex.DecodeString(f.log)
		if err != nil || len(b) != 32 {
			return t, nil, usage("--log %s: want 64 hexadecimal digits", f.log)
		}
		t.LogID = (*ledger.Hash)(b)
		notes = append(notes, "the log's identity that you gave")
	}
	for _, name := range f.keys {
		keys, err := keyring.PublicKeys(name)
		if err != nil {
			return t, nil, usage("--key: %w", err)
		}
		t.Keys = append(t.Keys, keys...)
		notes = append(notes, "the keys in "+name)
	}
	for _, name := range f.pins {
		b, err := os.ReadFile(name)
		if err != nil {
			return t, nil, usage("--pin: %w", err)
		}
		n, err := checkpoint.Parse(b)
		if err != nil {
			return t, nil, usage("--pin %s: %w", name, err)
		}
		t.Pinned = append(t.Pinned, ledger.Pinned{Checkpoint: n.Checkpoint, Source: "the checkpoint in " + name})
		notes = append(notes, "the checkpoint in "+name)
	}
	m, err := f.anchors.manifest()
	if err != nil {
		return t, nil, err
	}
	if m != nil {
		t.Keys = append(t.Keys, m.PublicKeys()...)
		notes = append(notes, f.anchors.notes()...)
	}
	if len(notes) > 0 || f.mirror != "" {
		return t, notes, nil
	}
	dir, err := f.ring.directory()
	if err != nil {
		return t, nil, err
	}
	t.KeysFrom = "among this machine's own (bodycam keys list); none was given"
	t.Keys, err = keyring.Trusted(dir)
	if errors.Is(err, keyring.ErrNone) {
		return t, []string{"none: there are no keys on this machine and none was given"}, nil
	}
	if err != nil {
		return t, nil, usage("%w", err)
	}
	return t, []string{"this machine's own keys in " + dir + ": they show what others changed, not what this machine's owner did"}, nil
}

// identities are what opens payloads, if anything does. Keys that can't be opened are no error: the content claim says so.
func (f *verifyFlags) identities() ([]age.Identity, error) {
	switch {
	case f.noPayloads:
		return nil, nil
	case f.identity != "":
		ids, err := keyring.IdentitiesIn(f.identity, f.ring.ask)
		if err == nil && ids == nil {
			err = fmt.Errorf("%s isn't there", f.identity)
		}
		if err != nil {
			return nil, usage("--identity: %w", err)
		}
		return ids, nil
	}
	return f.ring.identities()
}

// verify verifies a run or a bundle.
func (f *verifyFlags) verify(ctx context.Context, path string) (*verification, error) {
	for _, name := range f.require {
		if !ledger.IsClaim(name) {
			return nil, usage("--require: there is no claim %q", name)
		}
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, withHint(usage("%s: there is no such run directory or bundle", path), "`bodycam run` prints where it leaves its run directories (by default under ./runs)")
	}
	if err != nil {
		return nil, unopened(err)
	}
	trust, notes, err := f.trust()
	if err != nil {
		return nil, err
	}
	trust.Pinned = append(trust.Pinned, f.held[path]...)
	v := &verification{Path: path, Trust: notes}
	if !info.IsDir() {
		return v, f.bundle(v, trust)
	}
	if err := mayRead(path); err != nil {
		return nil, err
	}
	if !isRunOrBundle(path) {
		if _, err := os.Lstat(filepath.Join(path, store.InfoFile)); err == nil {
			return v, v.noLedger()
		}
		return nil, withHint(usage("%s has no ledger to verify", path), "a run's ledger is the folder ledger in its directory; bodycam run prints where that is")
	}
	return v, f.run(ctx, v, trust)
}

func (f *verifyFlags) bundle(v *verification, trust ledger.Trust) error {
	b, err := regular.ReadNamed(v.Path)
	if err != nil {
		return environment(err)
	}
	v.Kind = "bundle"
	bundle, err := ledger.ParseBundle(b)
	if err != nil && !bytes.Contains(b[:min(len(b), 64)], []byte("bodycam")) {
		return usage("%s is neither a run directory nor a bundle", v.Path)
	}
	if err != nil {
		v.Report = ledger.Unreadable(err)
		return nil
	}
	if v.Anchors, err = f.anchors.judgeBundle(bundle, &trust); err != nil {
		return err
	}
	v.Report = bundle.Verify(trust, f.require...)
	v.concludeAnchors(bundle.Genesis, bundle.Checkpoint.Size)
	if f.show {
		v.Disclosed = disclosed(bundle)
	}
	if err := v.equivocations(f, trust.Keys); err != nil {
		return err
	}
	return v.delegations(f, trust)
}

func (f *verifyFlags) run(ctx context.Context, v *verification, trust ledger.Trust) error {
	v.Kind = "run"
	ids, err := f.identities()
	if err != nil {
		return err
	}
	if f.mirror != "" {
		if err := f.compareMirror(ctx, v, &trust); err != nil {
			return err
		}
	}
	if f.host {
		if err := f.pinHost(v, &trust); err != nil {
			return err
		}
	}
	gen, err := f.judgeRun(v, &trust)
	if err != nil {
		return err
	}
	if !f.host && len(trust.Keys) > 0 { // beside keys, and no root by itself: it isn't verified here
		f.pinKnown(v, &trust)
	}
	v.Report, err = ledger.Verify(ctx, regular.FS(v.Path), ledger.VerifyOptions{
		Trust: trust, Identities: ids, Payloads: !f.noPayloads, Require: f.require,
	})
	if err != nil {
		return environment(fmt.Errorf("verifying %s: %w", v.Path, err))
	}
	v.undated()
	v.identify(ids)
	v.compareCopies(ids, f.noPayloads)
	v.recorded()
	v.conclude()
	v.concludeAnchors(gen, v.Epochs)
	if err := v.equivocations(f, trust.Keys); err != nil {
		return err
	}
	return v.delegations(f, trust)
}

// copiesReport is how the working copies compare with what was sealed.
type copiesReport struct {
	Status ledger.Status     `json:"status"`
	Why    string            `json:"why,omitempty"`
	Faults []store.CopyFault `json:"faults,omitempty"`

	missed bool // they couldn't be compared, though that was asked for
}

func (v *verification) compareCopies(ids []age.Identity, unasked bool) {
	if onlyLedger(v.Path) {
		return // a mirror's copy, or a log that isn't a run's
	}
	c := &copiesReport{Status: ledger.StatusVerified}
	v.Copies = c
	switch {
	case v.Verdict == ledger.Tampered:
		c.Status, c.Why = ledger.StatusUnverifiable, "the ledger that they would be compared with was tampered with"
		return
	case unasked:
		c.Status, c.Why = ledger.StatusUnverifiable, "they weren't compared: --no-payloads"
		return
	case len(ids) == 0:
		c.missed, c.Status, c.Why = true, ledger.StatusUnverifiable, "they weren't compared: no key that reads what was sealed"
		return
	}
	r, err := store.Open(v.Path)
	if err != nil {
		c.fault(store.CopyFault{Name: store.InfoFile, Why: err.Error()})
		r = &store.Run{Dir: v.Path}
	}
	r.Identities = ids
	faults, err := r.CompareCopies()
	for _, k := range faults {
		if k.Name == features.Kept { // any reader makes it again where it is gone or stale
			if same, err := features.Genuine(r, joinRows); err == nil && same {
				continue
			}
		}
		c.fault(k)
	}
	switch {
	case errors.Is(err, ledger.ErrNoKey):
		c.missed = true
		c.Status, c.Why = worseStatus(c.Status, ledger.StatusUnverifiable), "none of the keys at hand reads what was sealed"
	case err != nil:
		c.Status, c.Why = worseStatus(c.Status, ledger.StatusIncomplete), err.Error()
	case r.Cut() && !v.Closed && !r.HasCopies():
		c.Status, c.Why = worseStatus(c.Status, ledger.StatusUnverifiable), store.EventsFile+" isn't there: the run was cut off or is kept in its ledger alone, which has the events"
	case r.Cut() && c.Status == ledger.StatusTampered && !v.Closed:
		c.Status, c.Why = ledger.StatusIncomplete, "the run was cut off or is still written: its copies may be ahead of its ledger"
	}
}

// noLedger is what is said of a run whose ledger isn't there.
func (v *verification) noLedger() error {
	v.Kind = "run"
	v.Report = ledger.Missing("its ledger isn't there: the files beside it are nobody's word")
	if _, err := os.Lstat(filepath.Join(v.Path, "ledger")); err == nil {
		v.Report = ledger.Missing("its ledger has no genesis: the files beside it are nobody's word")
	}
	return nil
}

// runReport is which run the ledger says it is of.
type runReport struct {
	ID     string        `json:"id,omitempty"` // as it was sealed
	Status ledger.Status `json:"status"`
	Why    string        `json:"why,omitempty"`
}

func (r *runReport) reasons() []string {
	if r.Why == "" {
		return nil
	}
	return []string{r.Why}
}

// identify says which run it is, and whether its folder is named for another: two whole runs that changed places are
// each what was recorded, and neither is what its name says.
func (v *verification) identify(ids []age.Identity) {
	if v.Verdict == ledger.Tampered || onlyLedger(v.Path) {
		return
	}
	v.Run = &runReport{Status: ledger.StatusUnverifiable, Why: "its id is sealed, and nothing at hand opens it"}
	if len(ids) == 0 {
		return
	}
	id, err := (&store.Run{Dir: v.Path, Identities: ids}).SealedID()
	switch {
	case errors.Is(err, ledger.ErrNoKey):
		return
	case err != nil:
		v.Run.Why = err.Error()
		return
	case id == "":
		v.Run.Why = "its id is sealed when a run ends, and this one was cut off or is still written"
		return
	}
	v.Run.ID, v.Run.Status, v.Run.Why = id, ledger.StatusVerified, ""
	if abs, err := filepath.Abs(v.Path); err == nil && store.IsID(filepath.Base(abs)) && filepath.Base(abs) != id {
		v.Run.Status, v.Run.Why = ledger.StatusIncomplete, "its folder has the name of another run, "+filepath.Base(abs)
	}
}

// undated says why a mirror doesn't date the log.
func (v *verification) undated() {
	if c := &v.Claims.ExistedBy; v.Mirror != nil && v.Mirror.Undated != "" && c.Status != ledger.StatusVerified {
		c.Reasons = append(c.Reasons, v.Mirror.Where+": "+v.Mirror.Undated)
	}
}

// recorded takes the run's own word for what its record lacks: blind spots, a sensor that never ran. The ledger proves
// that nothing of what it was given is missing; it can't know what it was never given.
func (v *verification) recorded() {
	r, err := store.Open(v.Path)
	if err != nil || v.Claims.Coverage.Status == ledger.StatusTampered || r.Info.ID == "" {
		return
	}
	c := &v.Claims.Coverage
	lacks := r.Info.Complete.Reasons
	if !r.Info.Ended.IsZero() && !r.Info.Complete.Complete && len(lacks) == 0 {
		lacks = []string{"the run calls its own record incomplete"}
	}
	if len(lacks) == 0 {
		return
	}
	c.Status = ledger.StatusIncomplete
	for _, why := range lacks {
		c.Reasons = append(c.Reasons, "the run says: "+why)
	}
	if v.Verdict == ledger.Verified {
		v.Verdict = ledger.Incomplete
	}
}

// onlyLedger tells whether a directory holds a ledger and nothing of a run besides.
func onlyLedger(dir string) bool {
	for _, name := range []string{store.InfoFile, store.EventsFile, store.AgentDir, store.RowsFile, store.FindingsFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return false
		}
	}
	return true
}

func (c *copiesReport) fault(k store.CopyFault) {
	c.Faults = append(c.Faults, k)
	switch {
	case !k.Derived:
		c.Status = ledger.StatusTampered
	case c.Status == ledger.StatusVerified:
		c.Status, c.Why = ledger.StatusIncomplete, k.Name+" isn't what the record gives: bodycam show makes it again"
	}
}

func worseStatus(a, b ledger.Status) ledger.Status {
	if a == ledger.StatusTampered {
		return a
	}
	return b
}
