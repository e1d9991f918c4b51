package a2a

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	_ "crypto/sha256" // the hashes that algorithms name
	_ "crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
)

// Key is a public key that a verifier trusts for cards. ID is its kid; "": it is tried for every signature.
type Key struct {
	ID     string
	Public crypto.PublicKey
}

// SignatureCheck is what came of checking one signature.
type SignatureCheck struct {
	KeyID     string `json:"key_id,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	Valid     bool   `json:"valid"`
	// Form is the canonical form that the signature covers: "without-defaults" as the specification has it, or
	// "as-served", which some SDKs sign.
	Form string `json:"form,omitempty"`
	Why  string `json:"why,omitempty"` // why it isn't valid, or can't be checked
}

// Verify checks the card's signatures with keys that the caller trusts. Keys which a card names itself (jku, jwk) are
// not fetched: whoever is judged doesn't choose the yardstick.
func (c *Card) Verify(keys []Key) []SignatureCheck {
	out := make([]SignatureCheck, 0, len(c.Signatures))
	for _, s := range c.Signatures {
		out = append(out, c.verify(s, keys))
	}
	return out
}

func (c *Card) verify(s Signature, keys []Key) SignatureCheck {
	var head struct {
		Alg  string   `json:"alg"`
		Kid  string   `json:"kid"`
		Crit []string `json:"crit"`
		B64  *bool    `json:"b64"`
	}
	raw, err := base64.RawURLEncoding.DecodeString(s.Protected)
	if err == nil {
		err = json.Unmarshal(raw, &head)
	}
	if err != nil {
		return SignatureCheck{Why: "its protected header can't be read: " + err.Error()}
	}
	r := SignatureCheck{KeyID: head.Kid, Algorithm: head.Alg}
	sig, err := base64.RawURLEncoding.DecodeString(s.Signature)
	switch {
	case err != nil:
		r.Why = "it isn't base64url: " + err.Error()
	case len(head.Crit) > 0 || head.B64 != nil && !*head.B64:
		r.Why = "it has critical header fields that aren't supported"
	}
	if r.Why != "" {
		return r
	}
	forms, err := c.signedForms()
	if err != nil {
		r.Why = err.Error()
		return r
	}
	r.Why = "no trusted key has its key id"
	for _, k := range keys {
		if k.ID != "" && head.Kid != "" && k.ID != head.Kid {
			continue
		}
		for _, f := range forms {
			input := s.Protected + "." + base64.RawURLEncoding.EncodeToString(f.payload)
			if err := checkJWS(head.Alg, k.Public, []byte(input), sig); err != nil {
				r.Why = err.Error()
				continue
			}
			r.Valid, r.Form, r.Why = true, f.name, ""
			return r
		}
	}
	return r
}

type signedForm struct {
	name    string
	payload []byte
}

// signedForms are the byte strings that a signature may cover.
func (c *Card) signedForms() ([]signedForm, error) {
	m := maps.Clone(c.unsignedForm)
	delete(m, "signatures")
	full, err := canonical(nil, m)
	if err != nil {
		return nil, err
	}
	lean, err := canonical(nil, withoutDefaults(m))
	if err != nil {
		return nil, err
	}
	return []signedForm{{"without-defaults", lean}, {"as-served", full}}, nil
}

func checkJWS(alg string, pub crypto.PublicKey, input, sig []byte) error {
	bad := errors.New("the signature doesn't match the card")
	if alg == "EdDSA" || alg == "Ed25519" {
		k, ok := pub.(ed25519.PublicKey)
		if !ok {
			return fmt.Errorf("algorithm %s with a key of another kind", alg)
		}
		if !ed25519.Verify(k, input, sig) {
			return bad
		}
		return nil
	}
	hashes := map[string]crypto.Hash{"256": crypto.SHA256, "384": crypto.SHA384, "512": crypto.SHA512}
	if len(alg) != 5 || hashes[alg[2:]] == 0 {
		return fmt.Errorf("algorithm %q isn't supported", alg)
	}
	h := hashes[alg[2:]].New()
	h.Write(input)
	digest := h.Sum(nil)
	switch k := pub.(type) {
	case *ecdsa.PublicKey:
		n := (k.Curve.Params().BitSize + 7) / 8
		want := map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()}[alg]
		if want != k.Curve || len(sig) != 2*n {
			return fmt.Errorf("algorithm %s with a key or signature of another size", alg)
		}
		if !ecdsa.Verify(k, digest, new(big.Int).SetBytes(sig[:n]), new(big.Int).SetBytes(sig[n:])) {
			return bad
		}
		return nil
	case *rsa.PublicKey:
		var err error
		switch alg[:2] {
		case "RS":
			err = rsa.VerifyPKCS1v15(k, hashes[alg[2:]], digest, sig)
		case "PS":
			err = rsa.VerifyPSS(k, hashes[alg[2:]], digest, sig, nil)
		default:
			return fmt.Errorf("algorithm %s with an RSA key", alg)
		}
		if err != nil {
			return bad
		}
		return nil
	}
	return fmt.Errorf("a key of type %T can't check algorithm %s", pub, alg)
}

// ParseKeys reads a JSON Web Key Set, or one key.
func ParseKeys(data []byte) ([]Key, error) {
	type jwk struct {
		Kty, Crv, Kid, X, Y, N, E string
	}
	var set struct {
		Keys []jwk
		jwk
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("reading a JSON Web Key Set: %w", err)
	}
	if set.Keys == nil && set.Kty != "" {
		set.Keys = []jwk{set.jwk}
	}
	var out []Key
	for i, k := range set.Keys {
		part := func(s string) []byte {
			b, err := base64.RawURLEncoding.DecodeString(s)
			if err != nil {
				return nil
			}
			return b
		}
		key := Key{ID: k.Kid}
		switch curve := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}[k.Crv]; {
		case k.Kty == "EC" && curve != nil:
			n := (curve.Params().BitSize + 7) / 8
			x, y := part(k.X), part(k.Y)
			if len(x) != n || len(y) != n {
				return nil, fmt.Errorf("key %d: its coordinates don't have %d bytes", i, n)
			}
			pub, err := ecdsa.ParseUncompressedPublicKey(curve, append(append([]byte{4}, x...), y...))
			if err != nil {
				return nil, fmt.Errorf("key %d: %w", i, err)
			}
			key.Public = pub
		case k.Kty == "OKP" && k.Crv == "Ed25519" && len(part(k.X)) == ed25519.PublicKeySize:
			key.Public = ed25519.PublicKey(part(k.X))
		case k.Kty == "RSA" && len(part(k.N)) >= 256 && len(part(k.E)) > 0 && len(part(k.E)) <= 4:
			key.Public = &rsa.PublicKey{N: new(big.Int).SetBytes(part(k.N)), E: int(new(big.Int).SetBytes(part(k.E)).Int64())}
		default:
			return nil, fmt.Errorf("key %d: kind %q, curve %q can't be used: want EC, Ed25519 or RSA of 2,048 bits or more", i, k.Kty, k.Crv)
		}
		out = append(out, key)
	}
	if len(out) == 0 {
		return nil, errors.New("the key set is empty")
	}
	return out, nil
}
