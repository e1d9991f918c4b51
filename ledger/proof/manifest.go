package proof

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

// Manifest says whose word counts: roots of trust by name, and a policy over them. A verifier writes one himself, or
// gets the one that an operator publishes from somewhere that isn't the operator's store, and pins it by its digest.
//
// As a file it is JSON. An operator's is signed: behind the JSON text, which ends with a newline, stand an empty line and
// signature lines of his keys in the form of c2sp.org/signed-note, over the JSON text.
type Manifest struct {
	// Version is "bodycam-manifest/v1".
	Version string `json:"manifest"`
	// Operator is for people.
	Operator string `json:"operator,omitempty"`
	// Signers are the keys that sign the manifest itself (verifier keys); none: it is the verifier's own.
	Signers []string `json:"signers,omitempty"`
	// Keys are the recorders' signing keys: verifier keys, or ed25519:BASE64, ml-dsa-44:BASE64.
	Keys []string `json:"keys,omitempty"`
	// Approvers are the keys (verifier keys, named as the approvers are) of people whose approvals count as signed.
	Approvers []string `json:"approvers,omitempty"`
	// Roots are what anchors are checked against, by the name that the policy calls them.
	Roots map[string]Root `json:"roots,omitempty"`
	// Policy is an [Expression]; empty: none of the roots needs to vouch.
	Policy string `json:"policy,omitempty"`

	policy *Expression
	keys   []ledger.PublicKey
	people []checkpoint.Key
	digest [sha256.Size]byte
}

// Root is one root of trust.
type Root struct {
	Kind string `json:"kind"`

	// Key is the verifier key of a witness, a transparency log or whoever signs digests.
	Key string `json:"key,omitempty"`
	// Witnesses must have cosigned a transparency log's checkpoint, Quorum of them (default: all).
	Witnesses []string `json:"witnesses,omitempty"`
	Quorum    int      `json:"quorum,omitempty"`

	// Certificates are the root certificates of a time stamp authority, PEM.
	Certificates string `json:"certificates,omitempty"`
	// TSAPolicy is the object identifier of the only policy that is accepted, in dotted form. Empty: any.
	TSAPolicy string `json:"tsa_policy,omitempty"`
	// Accuracy is the worst accuracy that is accepted, in seconds. 0: any, and one that isn't stated.
	Accuracy float64 `json:"accuracy,omitempty"`

	// Chain, Contract, Sender and Design say where on a chain the log's anchors must be.
	Chain    uint64 `json:"chain,omitempty"`
	Contract string `json:"contract,omitempty"`
	Sender   string `json:"sender,omitempty"`
	Design   string `json:"design,omitempty"`
	// Blocks are hashes of blocks that the verifier knows to be final, from a node or an explorer that he relies on.
	Blocks []string `json:"blocks,omitempty"`
	// Permissioned chains are labelled: their operators, together, can rewrite them.
	Permissioned bool `json:"permissioned,omitempty"`
}

const (
	manifestVersion = "bodycam-manifest/v1"
	maxManifest     = 1 << 20
	maxRoots        = 64
)

// ErrNotPinned is wrapped where a manifest that isn't the verifier's own comes without its digest.
var ErrNotPinned = errors.New("an operator's manifest must be pinned by its digest, obtained elsewhere")

// ParseManifest reads a manifest. One that names signers must be signed by every one of them and have the pinned
// digest (SHA-256 of the file), for whoever is judged doesn't choose the yardstick: nil is an error then.
func ParseManifest(b []byte, pinned *[sha256.Size]byte) (*Manifest, error) {
	if digest := sha256.Sum256(b); pinned != nil && *pinned != digest {
		return nil, fmt.Errorf("the manifest isn't the one that was pinned: its digest is %x, not %x", digest, *pinned)
	}
	m, err := parseManifest(b)
	if err != nil {
		return nil, fmt.Errorf("reading a manifest: %w", err)
	}
	if pinned == nil && len(m.Signers) > 0 {
		return nil, fmt.Errorf("%w (this one's is %x)", ErrNotPinned, m.digest)
	}
	return m, nil
}

func parseManifest(b []byte) (*Manifest, error) {
	if len(b) > maxManifest {
		return nil, fmt.Errorf("%w: %d bytes", ErrSyntax, len(b))
	}
	text, signatures := b, ""
	if i := bytes.LastIndex(b, []byte("\n\n— ")); i >= 0 {
		text, signatures = b[:i+1], string(b[i+2:])
	}
	m := &Manifest{digest: sha256.Sum256(b)}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: something stands behind the JSON object", ErrSyntax)
	}
	if err := uniqueKeys(json.NewDecoder(bytes.NewReader(text))); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	if m.Version == "" {
		return nil, fmt.Errorf("%w: its key \"manifest\" is missing, which says the version: \"manifest\": %q", ErrSyntax, manifestVersion)
	}
	if m.Version != manifestVersion {
		return nil, fmt.Errorf("%w: its version is %.40q, not %q", ErrSyntax, m.Version, manifestVersion)
	}
	if err := m.valid(); err != nil {
		return nil, err
	}
	return m, m.verify(text, signatures)
}

// uniqueKeys refuses an object that has a key twice: of two values, readers don't all take the same. The text is valid JSON.
func uniqueKeys(d *json.Decoder) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	open, _ := t.(json.Delim)
	if open != '{' && open != '[' {
		return nil
	}
	seen := map[string]bool{}
	for d.More() {
		if open == '{' {
			if t, err = d.Token(); err != nil {
				return err
			}
			key := fmt.Sprint(t)
			if seen[key] {
				return fmt.Errorf("the key %.70q stands twice in one object", key)
			}
			seen[key] = true
		}
		if err := uniqueKeys(d); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

func (m *Manifest) valid() (err error) {
	if len(m.Roots) > maxRoots {
		return fmt.Errorf("%w: more than %d roots", ErrSyntax, maxRoots)
	}
	for _, s := range m.Keys {
		k, err := ParsePublicKey(s)
		if err != nil {
			return err
		}
		m.keys = append(m.keys, k)
	}
	for _, s := range m.Approvers {
		k, err := checkpoint.ParseKey(s)
		if err != nil {
			return fmt.Errorf("approvers: %w", err)
		}
		m.people = append(m.people, k)
	}
	for _, name := range m.names() {
		r := m.Roots[name]
		if !validRootName(name) {
			return fmt.Errorf("%w: a root can't be called %.70q", ErrSyntax, name)
		}
		if _, err := r.checker(); err != nil {
			return fmt.Errorf("root %s: %w", name, err)
		}
	}
	if m.Policy == "" {
		return nil
	}
	if m.policy, err = ParsePolicy(m.Policy); err != nil {
		return err
	}
	return m.covers(m.policy)
}

// covers demands that every name of a policy is a root.
func (m *Manifest) covers(e *Expression) (err error) {
	e.walk(func(k *Expression) {
		if _, ok := m.Roots[k.name]; !ok && err == nil {
			err = fmt.Errorf("%w: policy %.100q: %w", ErrSyntax, e.words, policyError(k.at, "it names %s, which is no root; the roots are %s", k.name, strings.Join(m.names(), ", ")))
		}
	})
	if err == nil {
		if a, b := m.twins(e); a != "" {
			err = fmt.Errorf("%w: policy %.100q: the roots %s and %s are one key under two names, which would count twice", ErrSyntax, e.words, a, b)
		}
	}
	return err
}

// twins are two names in different parts of an expression, more than one of which must be met, that stand for one key.
func (m *Manifest) twins(e *Expression) (string, string) {
	seen := map[string]string{}
	for _, k := range e.kids {
		if a, b := m.twins(k); a != "" {
			return a, b
		}
		for _, name := range k.Names() {
			r := m.Roots[name]
			who := r.who()
			if other := seen[who]; who != "" && e.need > 1 && other != "" && other != name {
				return other, name
			}
			if seen[who] == "" {
				seen[who] = name
			}
		}
	}
	return "", ""
}

// who is whose word a root is, the same for two roots of one key, authority or account.
func (r *Root) who() string {
	switch r.Kind {
	case KindTSA:
		return "tsa " + strings.Join(strings.Fields(r.Certificates), "") + " " + r.TSAPolicy
	case KindEVM:
		return strings.ToLower(fmt.Sprintf("evm %d %s %s", r.Chain, r.Contract, r.Sender))
	}
	k, err := checkpoint.ParseKey(r.Key)
	if err != nil {
		return "" // which is refused elsewhere
	}
	return "key " + string(k.Public)
}

func (m *Manifest) names() []string {
	var out []string
	for name := range m.Roots {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}

// SetPolicy puts the verifier's own policy in place of the manifest's.
func (m *Manifest) SetPolicy(s string) error {
	e, err := ParsePolicy(s)
	if err != nil {
		return err
	}
	m.policy, m.Policy = e, s
	return m.covers(e)
}

// PublicKeys are the recorders' keys.
func (m *Manifest) PublicKeys() []ledger.PublicKey { return m.keys }

// ApproverKeys are the approvers' keys.
func (m *Manifest) ApproverKeys() []checkpoint.Key { return m.people }

// Digest is the SHA-256 of the file that it was read from.
func (m *Manifest) Digest() string { return hex.EncodeToString(m.digest[:]) }

// Merge adds the roots, keys and approvers of another manifest. Where both have a root of one name or a policy, those of m stay.
func (m *Manifest) Merge(o *Manifest) {
	m.Keys, m.keys = append(m.Keys, o.Keys...), append(m.keys, o.keys...)
	m.Approvers, m.people = append(m.Approvers, o.Approvers...), append(m.people, o.people...)
	if m.Roots == nil {
		m.Roots = map[string]Root{}
	}
	for name, r := range o.Roots {
		if _, ok := m.Roots[name]; !ok {
			m.Roots[name] = r
		}
	}
	if m.policy == nil {
		m.policy, m.Policy = o.policy, o.Policy
	}
}

// verify checks that every signer signed.
func (m *Manifest) verify(text []byte, signatures string) error {
	signed := map[string][]byte{}
	for line := range strings.Lines(signatures) {
		name, b64, ok := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "— "), " ")
		raw, err := base64.StdEncoding.Strict().DecodeString(b64)
		if !ok || err != nil || len(raw) < 5 {
			return fmt.Errorf("%w: signature line %.60q", ErrSyntax, line)
		}
		signed[name+"+"+hex.EncodeToString(raw[:4])] = raw[4:]
	}
	for _, s := range m.Signers {
		k, err := checkpoint.ParseKey(s)
		if err != nil {
			return err
		}
		id := k.ID()
		if !k.VerifyMessage(text, signed[k.Name+"+"+hex.EncodeToString(id[:])]) {
			return fmt.Errorf("the manifest: %w: that of %s", checkpoint.ErrSignature, k.Name)
		}
	}
	return nil
}

// Sign writes a manifest as a file, signed under a name, which becomes its one signer.
func (m Manifest) Sign(name string, signers ...checkpoint.Signer) ([]byte, error) {
	m.Version, m.Signers = manifestVersion, nil
	var keys []checkpoint.Key
	for _, s := range signers {
		k := checkpoint.Key{Name: name}
		k.Alg, k.Public = s.Public()
		if err := k.Valid(); err != nil {
			return nil, err
		}
		keys = append(keys, k)
		m.Signers = append(m.Signers, k.String())
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing a manifest: %w", err)
	}
	text = append(text, '\n')
	out := append(bytes.Clone(text), '\n')
	for i, s := range signers {
		sig, err := s.Sign(text)
		if err != nil {
			return nil, fmt.Errorf("signing a manifest: %w", err)
		}
		id := keys[i].ID()
		out = append(out, "— "+name+" "+base64.StdEncoding.EncodeToString(append(id[:], sig...))+"\n"...)
	}
	if len(signers) == 0 {
		out = text
	}
	_, err = parseManifest(out)
	return out, err
}

// ParsePublicKey reads a recorder's key: a verifier key, or algorithm:BASE64.
func ParsePublicKey(s string) (ledger.PublicKey, error) {
	for _, alg := range []checkpoint.Algorithm{checkpoint.Ed25519, checkpoint.MLDSA44} {
		b64, ok := strings.CutPrefix(s, alg.String()+":")
		if !ok {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(b64)
		if err != nil {
			return ledger.PublicKey{}, fmt.Errorf("key %.60q: %w", s, err)
		}
		return ledger.PublicKey{Alg: alg, Public: raw}, checkpoint.Key{Name: "key", Alg: alg, Public: raw}.Valid()
	}
	k, err := checkpoint.ParseKey(s)
	return ledger.PublicKey{Alg: k.Alg, Public: k.Public}, err
}

// Gather puts together what a verifier brings: roots of his own, an operator's manifest with the digest that pins it
// (hexadecimal, with or without "sha256:"), and a policy that takes the place of either's. All of it may be absent; nil is
// returned then. Roots of his own stand above the operator's.
func Gather(own, operator []byte, digest, policy string) (*Manifest, error) {
	if operator == nil && digest != "" {
		return nil, fmt.Errorf("%w: the digest of a manifest, and no manifest that it could pin", ErrSyntax)
	}
	if own == nil && operator == nil {
		if policy != "" {
			return nil, fmt.Errorf("%w: a policy without roots that it could name", ErrSyntax)
		}
		return nil, nil
	}
	m := &Manifest{Version: manifestVersion}
	var err error
	if own != nil {
		if m, err = ParseManifest(own, nil); err != nil {
			return nil, err
		}
	}
	if operator != nil {
		var pinned *[sha256.Size]byte
		if digest != "" {
			b, err := hex.DecodeString(strings.TrimPrefix(digest, "sha256:"))
			if err != nil || len(b) != sha256.Size {
				return nil, fmt.Errorf("%w: the manifest's digest is %.80q, want 64 hexadecimal digits", ErrSyntax, digest)
			}
			pinned = (*[sha256.Size]byte)(b)
		}
		if pinned == nil {
			return nil, fmt.Errorf("%w (this one's is %x)", ErrNotPinned, sha256.Sum256(operator))
		}
		o, err := ParseManifest(operator, pinned)
		if err != nil {
			return nil, err
		}
		m.Merge(o)
	}
	switch {
	case policy != "":
		err = m.SetPolicy(policy)
	case m.policy != nil:
		err = m.covers(m.policy) // one's own roots may have taken the place of those that it was written for
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}
