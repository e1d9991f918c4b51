package cli

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/proof"
	"github.com/bodycam-dev/bodycam/ledger/regular"
	"github.com/goccy/go-yaml"
	"github.com/spf13/pflag"
)

// anchorTrust is what a verifier brings to judge anchors with.
type anchorTrust struct {
	roots, operator, digest, policy string
	digests                         []string
}

func (a *anchorTrust) add(fl *pflag.FlagSet) {
	fl.StringVar(&a.roots, "roots", "", "file of your own roots of trust for anchors, JSON or YAML, and a policy over them")
	fl.StringVar(&a.operator, "manifest", "", "operator's signed manifest of roots")
	fl.StringVar(&a.digest, "manifest-digest", "", "SHA-256 that the operator's manifest must have, from elsewhere")
	fl.StringVar(&a.policy, "policy", "", "who must vouch, in place of the manifest's policy")
	fl.StringArrayVar(&a.digests, "digests", nil, "folder of signed digests, as their keeper has it, to judge beside the run's own copies; repeatable")
}

// manifest reads what was given, nil where nothing was.
func (a *anchorTrust) manifest() (*proof.Manifest, error) {
	var files [2][]byte
	var err error
	if a.roots != "" {
		if files[0], err = readRoots(a.roots); err != nil {
			return nil, err
		}
	}
	if a.operator != "" { // signed as it is
		if files[1], err = os.ReadFile(a.operator); err != nil {
			return nil, usage("reading roots of trust: %w", err)
		}
	}
	m, err := proof.Gather(files[0], files[1], a.digest, a.policy)
	if errors.Is(err, proof.ErrNotPinned) {
		return nil, withHint(usage("--manifest %s: %w", a.operator, err), "compare its digest with the one that the operator published elsewhere, then give that with --manifest-digest")
	}
	if err != nil {
		return nil, usage("roots of trust: %w", err)
	}
	return m, nil
}

// kept are the proofs that lie with a run, and the digests that their keeper has of its log.
func (a *anchorTrust) kept(run, origin string) ([]ledger.Anchor, error) {
	out, err := proof.Read(regular.FS(run))
	if err != nil {
		return nil, environment(err)
	}
	for _, dir := range a.digests {
		more, err := proof.ReadDigests(regular.FS(dir), origin)
		if err != nil {
			return nil, usage("--digests %s: %w", dir, err)
		}
		out = append(out, more...)
	}
	return out, nil
}

// readRoots reads a file of roots that is one's own, JSON or YAML, as JSON.
func readRoots(name string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, usage("reading roots of trust: %w", err)
	}
	if t := bytes.TrimSpace(b); len(t) == 0 || t[0] == '{' {
		return b, nil
	}
	if b, err = yaml.YAMLToJSON(b); err != nil {
		return nil, usage("roots of trust in %s: %w", name, err)
	}
	return b, nil
}

func (a *anchorTrust) notes() (out []string) {
	if a.roots != "" {
		out = append(out, "the roots in "+a.roots)
	}
	if a.operator != "" {
		out = append(out, "the operator's manifest "+a.operator+", pinned by its digest")
	}
	return out
}

// judgeRun judges a run's anchors, adds what they vouch for to the roots, and returns the log's genesis. A log without one
// is for ledger.Verify to judge.
func (f *verifyFlags) judgeRun(v *verification, t *ledger.Trust) (*ledger.Genesis, error) {
	gen, err := runGenesis(v.Path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, environment(err)
	case err != nil:
		return nil, nil
	}
	anchors, err := f.anchors.kept(v.Path, gen.Origin())
	if err != nil {
		return nil, err
	}
	m, err := f.anchors.manifest()
	if err != nil || m == nil && len(anchors) == 0 {
		return nil, err
	}
	if m == nil {
		m = &proof.Manifest{}
	}
	v.Anchors = proof.Judge(gen.Origin(), anchors, m)
	t.Pinned = append(t.Pinned, v.Anchors.Pinned()...)
	return gen, nil
}

func (a *anchorTrust) judgeBundle(b *ledger.Bundle, t *ledger.Trust) (*proof.Judgement, error) {
	m, err := a.manifest()
	if err != nil || m == nil && len(b.Anchors) == 0 {
		return nil, err
	}
	if m == nil {
		m = &proof.Manifest{}
	}
	j := proof.JudgeBundle(b, m)
	t.Pinned = append(t.Pinned, j.Pinned()...)
	return j, nil
}

// concludeAnchors lets the anchors weigh in, once the log itself is verified.
func (v *verification) concludeAnchors(gen *ledger.Genesis, epochs uint64) {
	if v.Anchors == nil || gen == nil {
		return
	}
	v.Anchors.Conclude(epochs, time.Unix(0, gen.Created), gen.AnchorEvery)
	v.Verdict = v.Anchors.Lower(v.Verdict)
}
