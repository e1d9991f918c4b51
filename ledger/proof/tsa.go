package proof

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	_ "crypto/sha512" // SHA-384 and SHA-512, which authorities sign with
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// A time stamp (RFC 3161) is a CMS SignedData (RFC 5652) over a TSTInfo. What is stamped is SHA-256 of a checkpoint's
// text ([checkpoint.Checkpoint.Text]). Only DER is read. Demanded are: the imprint; one signer, bound by
// signingCertificateV2 (RFC 5816); its certificate, with the extended key usage timeStamping, critical and alone; a chain
// to a root of the verifier's, valid when it was stamped; and, where the root says so, policy and accuracy. Not checked:
// revocation, which needs a network.

var (
	oidSignedData    = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}
	oidTSTInfo       = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 1, 4}
	oidContentType   = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 3}
	oidMessageDigest = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 4}
	oidSigningCertV2 = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 2, 47}
	oidExtKeyUsage   = asn1.ObjectIdentifier{2, 5, 29, 37}
	oidTimeStamping  = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 8}
	oidSHA256        = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}
	oidSHA384        = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 2}
	oidSHA512        = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 3}
	oidPSS           = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 10}
)

type messageImprint struct {
	Algorithm pkix.AlgorithmIdentifier
	Digest    []byte
}

type timeStampRequest struct {
	Version int
	Imprint messageImprint
	Nonce   *big.Int
	CertReq bool
}

type timeStampResponse struct {
	Status struct {
		Status int
		Text   asn1.RawValue  `asn1:"optional"`
		Fail   asn1.BitString `asn1:"optional"`
	}
	Token asn1.RawValue `asn1:"optional"`
}

type contentInfo struct {
	Type    asn1.ObjectIdentifier
	Content asn1.RawValue `asn1:"explicit,tag:0"`
}

type cmsSignedData struct {
	Version int
	Digests []pkix.AlgorithmIdentifier `asn1:"set"`
	Encap   struct {
		Type    asn1.ObjectIdentifier
		Content []byte `asn1:"explicit,tag:0"`
	}
	Certificates asn1.RawValue `asn1:"optional,tag:0"`
	CRLs         asn1.RawValue `asn1:"optional,tag:1"`
	Signers      []cmsSigner   `asn1:"set"`
}

type cmsSigner struct {
	Version   int
	Issuer    issuerAndSerial
	Digest    pkix.AlgorithmIdentifier
	Attrs     asn1.RawValue `asn1:"optional,tag:0"`
	Algorithm pkix.AlgorithmIdentifier
	Signature []byte
	Unsigned  asn1.RawValue `asn1:"optional,tag:1"`
}

type issuerAndSerial struct {
	Issuer asn1.RawValue
	Serial *big.Int
}

type cmsAttribute struct {
	Type   asn1.ObjectIdentifier
	Values asn1.RawValue `asn1:"set"`
}

type tstAccuracy struct {
	Seconds int `asn1:"optional"`
	Millis  int `asn1:"optional,tag:0"`
	Micros  int `asn1:"optional,tag:1"`
}

type tstInfo struct {
	Version    int
	Policy     asn1.ObjectIdentifier
	Imprint    messageImprint
	Serial     *big.Int
	Time       time.Time     `asn1:"generalized"`
	Accuracy   tstAccuracy   `asn1:"optional"`
	Ordering   bool          `asn1:"optional"`
	Nonce      *big.Int      `asn1:"optional"`
	TSA        asn1.RawValue `asn1:"optional,explicit,tag:0"`
	Extensions asn1.RawValue `asn1:"optional,tag:1"`
}

// TimeStampRequest is the request to stamp a checkpoint's text, in DER.
func TimeStampRequest(text string, nonce *big.Int) ([]byte, error) {
	sum := sha256.Sum256([]byte(text))
	r := timeStampRequest{Version: 1, Nonce: nonce, CertReq: true}
	r.Imprint = messageImprint{pkix.AlgorithmIdentifier{Algorithm: oidSHA256, Parameters: asn1.NullRawValue}, sum[:]}
	b, err := asn1.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("making a time stamp request: %w", err)
	}
	return b, nil
}

// TimeStampToken takes the token out of an authority's answer and checks that it answers the request: status, nonce and
// imprint. Whether the token can be believed, a root says.
func TimeStampToken(answer []byte, text string, nonce *big.Int) ([]byte, error) {
	var r timeStampResponse
	if err := der(answer, &r); err != nil {
		return nil, fmt.Errorf("a time stamp authority's answer: %w", err)
	}
	if r.Status.Status > 1 {
		return nil, fmt.Errorf("the time stamp authority refused: status %d, %q", r.Status.Status, printable(r.Status.Text.Bytes))
	}
	token := r.Token.FullBytes
	t, err := parseToken(token)
	if err != nil {
		return nil, err
	}
	if t.info.Nonce == nil || t.info.Nonce.Cmp(nonce) != 0 {
		return nil, fmt.Errorf("%w: the time stamp doesn't bear the request's nonce: it may be an old one", ErrSyntax)
	}
	return token, t.stamps(text)
}

func printable(b []byte) string {
	return string(bytes.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return -1
		}
		return r
	}, b[:min(len(b), 200)]))
}

// timeStamp is a token that was parsed and not yet verified.
type timeStamp struct {
	info    tstInfo
	content []byte
	signer  cmsSigner
	certs   []*x509.Certificate
}

// der unmarshals exactly one value.
func der(b []byte, v any) error {
	rest, err := asn1.Unmarshal(b, v)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: %d bytes behind the DER value", ErrSyntax, len(rest))
	}
	return nil
}

func parseToken(b []byte) (*timeStamp, error) {
	wrap := func(err error) (*timeStamp, error) { return nil, fmt.Errorf("a time stamp: %w", err) }
	if len(b) > maxInput {
		return wrap(fmt.Errorf("%w: %d bytes", ErrSyntax, len(b)))
	}
	var c contentInfo
	if err := der(b, &c); err != nil {
		return wrap(err)
	}
	var s cmsSignedData
	if !c.Type.Equal(oidSignedData) {
		return wrap(fmt.Errorf("%w: its content type is %v", ErrSyntax, c.Type))
	}
	if err := der(c.Content.Bytes, &s); err != nil {
		return wrap(err)
	}
	if !s.Encap.Type.Equal(oidTSTInfo) || len(s.Signers) != 1 {
		return wrap(fmt.Errorf("%w: it holds a %v with %d signers", ErrSyntax, s.Encap.Type, len(s.Signers)))
	}
	t := &timeStamp{content: s.Encap.Content, signer: s.Signers[0]}
	if err := der(t.content, &t.info); err != nil {
		return wrap(err)
	}
	if t.info.Version != 1 || t.info.Serial == nil {
		return wrap(fmt.Errorf("%w: version %d", ErrSyntax, t.info.Version))
	}
	var err error
	if t.certs, err = x509.ParseCertificates(s.Certificates.Bytes); err != nil {
		return wrap(fmt.Errorf("%w: its certificates: %w", ErrSyntax, err))
	}
	return t, nil
}

// stamps checks the imprint.
func (t *timeStamp) stamps(text string) error {
	sum := sha256.Sum256([]byte(text))
	if !t.info.Imprint.Algorithm.Algorithm.Equal(oidSHA256) || !bytes.Equal(t.info.Imprint.Digest, sum[:]) {
		return fmt.Errorf("%w: the time stamp is of something else", ErrSyntax)
	}
	return nil
}

// tsaRoot is what a verifier knows of a time stamp authority.
type tsaRoot struct {
	pool     *x509.CertPool
	policy   string
	accuracy time.Duration
}

func newTSARoot(r *Root) (checker, error) {
	out := tsaRoot{pool: x509.NewCertPool(), policy: r.TSAPolicy, accuracy: time.Duration(r.Accuracy * float64(time.Second))}
	n := 0
	for rest := []byte(r.Certificates); ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: certificate %d: %w", ErrSyntax, n, err)
		}
		out.pool.AddCert(c)
	}
	if n == 0 || out.accuracy < 0 {
		return nil, fmt.Errorf("%w: a time stamp authority needs a root certificate, in PEM", ErrSyntax)
	}
	return out, nil
}

func (r tsaRoot) check(e *Evidence) (vouched, error) {
	t, err := parseToken(e.Data)
	if err != nil {
		return vouched{}, err
	}
	if err := t.stamps(e.Note.Text()); err != nil {
		return vouched{}, err
	}
	cert, err := t.verifySignature()
	if err != nil {
		return vouched{}, err
	}
	if err := onlyForTimeStamps(cert); err != nil {
		return vouched{}, err
	}
	between := x509.NewCertPool()
	for _, c := range t.certs {
		between.AddCert(c)
	}
	_, err = cert.Verify(x509.VerifyOptions{Roots: r.pool, Intermediates: between, CurrentTime: t.info.Time, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping}})
	switch unknown := (x509.UnknownAuthorityError{}); {
	case err == nil:
	case asError(err, &unknown):
		return vouched{}, fmt.Errorf("%w: the certificate of %s doesn't lead to a root that you gave", ErrNoRoot, cert.Subject)
	default:
		return vouched{}, fmt.Errorf("the certificate of %s: %w", cert.Subject, err)
	}
	if r.policy != "" && t.info.Policy.String() != r.policy {
		return vouched{}, fmt.Errorf("stamped under policy %v, not %s", t.info.Policy, r.policy)
	}
	a := t.info.Accuracy
	accuracy := time.Duration(a.Seconds)*time.Second + time.Duration(a.Millis)*time.Millisecond + time.Duration(a.Micros)*time.Microsecond
	if a.Seconds < 0 || a.Millis < 0 || a.Micros < 0 || a.Seconds > 1<<30 || r.accuracy > 0 && (accuracy == 0 || accuracy > r.accuracy) {
		return vouched{}, fmt.Errorf("its accuracy is %v, where at most %v is accepted", accuracy, r.accuracy)
	}
	// The head existed by then: the later end of what the authority claims.
	return vouched{time: t.info.Time.Add(accuracy).UTC()}, nil
}

// verifySignature checks the signed attributes and the signature over them, and returns the signer's certificate.
func (t *timeStamp) verifySignature() (*x509.Certificate, error) {
	hash, err := hashOf(t.signer.Digest.Algorithm)
	if err != nil {
		return nil, err
	}
	// The signature is over the attributes as a SET, not as the implicitly tagged field that they are (RFC 5652, 5.4).
	if len(t.signer.Attrs.FullBytes) == 0 {
		return nil, fmt.Errorf("%w: the time stamp has no signed attributes", ErrSyntax)
	}
	signed := append([]byte{0x31}, t.signer.Attrs.FullBytes[1:]...)
	var attrs []cmsAttribute
	if rest, err := asn1.UnmarshalWithParams(signed, &attrs, "set"); err != nil || len(rest) > 0 {
		return nil, fmt.Errorf("%w: the time stamp's signed attributes", ErrSyntax)
	}
	var kind asn1.ObjectIdentifier
	var digest []byte
	if err := attribute(attrs, oidContentType, &kind); err != nil {
		return nil, err
	}
	if err := attribute(attrs, oidMessageDigest, &digest); err != nil {
		return nil, err
	}
	h := hash.New()
	h.Write(t.content)
	if !kind.Equal(oidTSTInfo) || !bytes.Equal(digest, h.Sum(nil)) {
		return nil, fmt.Errorf("%w: the time stamp's attributes aren't of its content", ErrSyntax)
	}
	cert, err := t.signerCertificate(attrs)
	if err != nil {
		return nil, err
	}
	alg, err := algorithmOf(cert, hash, t.signer.Algorithm.Algorithm)
	if err != nil {
		return nil, err
	}
	if err := cert.CheckSignature(alg, signed, t.signer.Signature); err != nil {
		return nil, fmt.Errorf("the time stamp's signature is false: %w", err)
	}
	return cert, nil
}

// attribute reads the one value of an attribute that must be there once.
func attribute(attrs []cmsAttribute, oid asn1.ObjectIdentifier, v any) error {
	var found *cmsAttribute
	for i := range attrs {
		if !attrs[i].Type.Equal(oid) {
			continue
		}
		if found != nil {
			return fmt.Errorf("%w: the time stamp has attribute %v twice", ErrSyntax, oid)
		}
		found = &attrs[i]
	}
	if found == nil {
		return fmt.Errorf("%w: the time stamp lacks attribute %v", ErrSyntax, oid)
	}
	return der(found.Values.Bytes, v)
}

// signerCertificate finds the certificate that the attributes commit to. Without that commitment another certificate
// of the same key, with other usages, could be put in its place.
func (t *timeStamp) signerCertificate(attrs []cmsAttribute) (*x509.Certificate, error) {
	var list struct {
		Certs []asn1.RawValue
		More  asn1.RawValue `asn1:"optional"`
	}
	if err := attribute(attrs, oidSigningCertV2, &list); err != nil {
		return nil, err
	}
	if len(list.Certs) == 0 {
		return nil, fmt.Errorf("%w: the time stamp commits to no certificate", ErrSyntax)
	}
	hash := crypto.SHA256
	first := list.Certs[0].Bytes
	if len(first) > 0 && first[0] == 0x30 { // the algorithm, left out where it is SHA-256
		var alg pkix.AlgorithmIdentifier
		rest, err := asn1.Unmarshal(first, &alg)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
		}
		if hash, err = hashOf(alg.Algorithm); err != nil {
			return nil, err
		}
		first = rest
	}
	var digest []byte
	if _, err := asn1.Unmarshal(first, &digest); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	for _, c := range t.certs {
		h := hash.New()
		h.Write(c.Raw)
		if bytes.Equal(h.Sum(nil), digest) {
			if !bytes.Equal(c.RawIssuer, t.signer.Issuer.Issuer.FullBytes) || t.signer.Issuer.Serial == nil || c.SerialNumber.Cmp(t.signer.Issuer.Serial) != 0 {
				return nil, fmt.Errorf("%w: the time stamp names two certificates as its signer's", ErrSyntax)
			}
			return c, nil
		}
	}
	return nil, fmt.Errorf("%w: the time stamp doesn't hold its signer's certificate", ErrSyntax)
}

// onlyForTimeStamps demands what RFC 3161, 2.3 does.
func onlyForTimeStamps(c *x509.Certificate) error {
	for _, x := range c.Extensions {
		if !x.Id.Equal(oidExtKeyUsage) {
			continue
		}
		var usages []asn1.ObjectIdentifier
		if err := der(x.Value, &usages); err != nil {
			return err
		}
		if x.Critical && len(usages) == 1 && usages[0].Equal(oidTimeStamping) {
			return nil
		}
	}
	return fmt.Errorf("the certificate of %s isn't one for time stamps alone (critical extended key usage timeStamping)", c.Subject)
}

func hashOf(oid asn1.ObjectIdentifier) (crypto.Hash, error) {
	switch {
	case oid.Equal(oidSHA256):
		return crypto.SHA256, nil
	case oid.Equal(oidSHA384):
		return crypto.SHA384, nil
	case oid.Equal(oidSHA512):
		return crypto.SHA512, nil
	}
	return 0, fmt.Errorf("%w: the time stamp uses digest %v; SHA-256, SHA-384 and SHA-512 are read", ErrSyntax, oid)
}

// algorithmOf is the signature algorithm for a key and a digest.
func algorithmOf(c *x509.Certificate, h crypto.Hash, oid asn1.ObjectIdentifier) (x509.SignatureAlgorithm, error) {
	i := map[crypto.Hash]int{crypto.SHA256: 0, crypto.SHA384: 1, crypto.SHA512: 2}[h]
	switch c.PublicKey.(type) {
	case *rsa.PublicKey:
		if oid.Equal(oidPSS) {
			return []x509.SignatureAlgorithm{x509.SHA256WithRSAPSS, x509.SHA384WithRSAPSS, x509.SHA512WithRSAPSS}[i], nil
		}
		return []x509.SignatureAlgorithm{x509.SHA256WithRSA, x509.SHA384WithRSA, x509.SHA512WithRSA}[i], nil
	case *ecdsa.PublicKey:
		return []x509.SignatureAlgorithm{x509.ECDSAWithSHA256, x509.ECDSAWithSHA384, x509.ECDSAWithSHA512}[i], nil
	case ed25519.PublicKey:
		return x509.PureEd25519, nil
	}
	return 0, fmt.Errorf("%w: the time stamp's key is a %T", ErrSyntax, c.PublicKey)
}
