package proof

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/dcbor"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"golang.org/x/crypto/sha3"
)

// The designs of the contracts (internal/anchor/evm/contracts).
const (
	DesignHead    = "head"    // compare-and-swap head per (sender, log)
	DesignSuper   = "super"   // head over many recorders' heads
	DesignMapping = "mapping" // that of the Agent Flight Recorder: sender → epoch → {root, previous, time}
)

// ChainHead is what stands on a chain for a head: SHA-256 of the checkpoint's text, which commits to origin, size and root.
func ChainHead(c checkpoint.Checkpoint) merkle.Hash { return sha256.Sum256([]byte(c.Text())) }

// ChainLog is what names a log on a chain: SHA-256 of its origin.
func ChainLog(origin string) merkle.Hash { return sha256.Sum256([]byte(origin)) }

// SuperLeaf is a member's leaf in the tree whose head an aggregator anchors: log ‖ head, as on the chain.
func SuperLeaf(c checkpoint.Checkpoint) []byte {
	log, head := ChainLog(c.Origin), ChainHead(c)
	return append(log[:], head[:]...)
}

// eventTopics are Keccak-256 of the events' signatures.
var eventTopics = map[string]merkle.Hash{
	DesignHead:    Keccak([]byte("Anchored(address,bytes32,bytes32)")),
	DesignSuper:   Keccak([]byte("Batch(address,bytes32,uint64)")),
	DesignMapping: Keccak([]byte("Anchored(address,uint256,bytes32,bytes32)")),
}

// EventTopic is the first topic of a design's event.
func EventTopic(design string) merkle.Hash { return eventTopics[design] }

// Keccak is Keccak-256 of the concatenation.
func Keccak(parts ...[]byte) merkle.Hash {
	h := sha3.NewLegacyKeccak256()
	for _, p := range parts {
		h.Write(p)
	}
	var out merkle.Hash
	h.Sum(out[:0])
	return out
}

// Receipt proves that a transaction's receipt is in a block: the block's header leads to the receipts' trie, nodes of
// which lead to the receipt. As evidence it is one CBOR map:
//
//	1  uint   chain
//	2  text   design
//	3  bytes  block header, RLP
//	4  uint   index of the transaction in the block
//	5  array  nodes of the receipts' trie from its root, RLP
//	6  uint   index of the log entry in the receipt
//	7  uint   index of the member, where the design is "super"; 0
//	8  uint   number of the members; 0
//	9  array  hashes: proof of inclusion of the member
type Receipt struct {
	Chain   uint64
	Design  string
	Header  []byte
	Index   uint64
	Nodes   [][]byte
	Log     uint64
	Member  uint64
	Members uint64
	Proof   []merkle.Hash
}

// Append appends the one encoding.
func (r *Receipt) Append(b []byte) []byte {
	b = dcbor.AppendMap(b, 9)
	b = dcbor.AppendUint(append(b, 1), r.Chain)
	b = dcbor.AppendText(append(b, 2), r.Design)
	b = dcbor.AppendBytes(append(b, 3), r.Header)
	b = dcbor.AppendUint(append(b, 4), r.Index)
	b = dcbor.AppendArray(append(b, 5), len(r.Nodes))
	for _, n := range r.Nodes {
		b = dcbor.AppendBytes(b, n)
	}
	b = dcbor.AppendUint(append(b, 6), r.Log)
	b = dcbor.AppendUint(append(b, 7), r.Member)
	b = dcbor.AppendUint(append(b, 8), r.Members)
	b = dcbor.AppendArray(append(b, 9), len(r.Proof))
	for i := range r.Proof {
		b = dcbor.AppendBytes(b, r.Proof[i][:])
	}
	return b
}

// ParseReceipt reads what [Receipt.Append] wrote, and nothing else.
func ParseReceipt(b []byte) (*Receipt, error) {
	d := dcbor.NewDecoder(b)
	r := &Receipt{}
	d.Map()
	d.Key(1)
	r.Chain = d.Uint()
	d.Key(2)
	r.Design = d.Text()
	d.Key(3)
	r.Header = d.Bytes()
	d.Key(4)
	r.Index = d.Uint()
	d.Key(5)
	for range d.Array() {
		n := d.Bytes()
		if d.Err() != nil {
			break
		}
		r.Nodes = append(r.Nodes, n)
	}
	d.Key(6)
	r.Log = d.Uint()
	d.Key(7)
	r.Member = d.Uint()
	d.Key(8)
	r.Members = d.Uint()
	d.Key(9)
	for range d.Array() {
		var h merkle.Hash
		if d.Fixed(h[:]); d.Err() != nil {
			break
		}
		r.Proof = append(r.Proof, h)
	}
	err := d.Done()
	if err == nil && !bytes.Equal(r.Append(nil), b) {
		err = fmt.Errorf("encoding it again gives other bytes")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: proof of a receipt: %w", ErrSyntax, err)
	}
	return r, nil
}

// Anchored is what a receipt's log entry says.
type Anchored struct {
	Block    merkle.Hash // hash of the block
	Number   uint64
	Time     time.Time
	Contract [20]byte
	Topics   []merkle.Hash
	Data     []byte
}

// Open checks that the receipt is in the block whose header is given, that the transaction succeeded, and returns the
// log entry. That the block is one of the chain's, the verifier must know from elsewhere.
func (r *Receipt) Open() (*Anchored, error) {
	wrap := func(err error) (*Anchored, error) { return nil, fmt.Errorf("proof of a receipt: %w", err) }
	h, err := rlpList(r.Header)
	if err != nil {
		return wrap(err)
	}
	// parent, uncles, coinbase, state, transactions, receipts, bloom, difficulty, number, limit, used, time, …
	if len(h) < 15 || len(h[5].bytes) != 32 {
		return wrap(fmt.Errorf("%w: the header has %d fields", ErrSyntax, len(h)))
	}
	out := &Anchored{Block: Keccak(r.Header)}
	if out.Number, err = h[8].uint(); err != nil {
		return wrap(err)
	}
	sec, err := h[11].uint()
	if err != nil || sec > 1<<40 {
		return wrap(fmt.Errorf("%w: the header's time", ErrSyntax))
	}
	out.Time = time.Unix(int64(sec), 0).UTC()
	raw, err := trieValue(merkle.Hash(h[5].bytes), rlpUint(r.Index), r.Nodes)
	if err != nil {
		return wrap(err)
	}
	return out, out.entry(raw, r.Log)
}

// typeDeposit is that of the OP Stack's deposited transactions, which come from layer 1.
const typeDeposit = 0x7e

// entry reads one log entry of a receipt.
func (a *Anchored) entry(raw []byte, index uint64) error {
	fields := 4
	if len(raw) > 0 && raw[0] < 0x80 {
		if raw[0] == typeDeposit {
			fields = 6 // and nonce and version
		}
		raw = raw[1:] // the type of a typed receipt
	}
	rec, err := rlpList(raw)
	if err != nil {
		return err
	}
	if len(rec) != 4 && len(rec) != fields || !bytes.Equal(rec[0].bytes, []byte{1}) {
		return fmt.Errorf("%w: the transaction failed, or it is no receipt", ErrSyntax)
	}
	logs, err := rec[3].list()
	if err != nil {
		return err
	}
	if index >= uint64(len(logs)) {
		return fmt.Errorf("%w: the receipt has %d log entries, none numbered %d", ErrSyntax, len(logs), index)
	}
	f, err := logs[index].list()
	if err != nil {
		return err
	}
	if len(f) != 3 || len(f[0].bytes) != 20 || f[2].isList {
		return fmt.Errorf("%w: a receipt's log entry", ErrSyntax)
	}
	topics, err := f[1].list()
	if err != nil {
		return err
	}
	a.Contract, a.Data = [20]byte(f[0].bytes), f[2].bytes
	for _, t := range topics {
		if len(t.bytes) != 32 {
			return fmt.Errorf("%w: a topic of %d bytes", ErrSyntax, len(t.bytes))
		}
		a.Topics = append(a.Topics, merkle.Hash(t.bytes))
	}
	return nil
}

// Commits checks that the entry is the design's event and commits to the head, and returns who sent it.
func (a *Anchored) Commits(r *Receipt, c checkpoint.Checkpoint) (sender [20]byte, err error) {
	topic, ok := eventTopics[r.Design]
	wrong := func(what string) ([20]byte, error) {
		return sender, fmt.Errorf("%w: the log entry %s", merkle.ErrProof, what)
	}
	if !ok || len(a.Topics) < 2 || a.Topics[0] != topic || !bytes.Equal(a.Topics[1][:12], make([]byte, 12)) {
		return wrong("isn't the event of design " + printable([]byte(r.Design)))
	}
	copy(sender[:], a.Topics[1][12:])
	head, log := ChainHead(c), ChainLog(c.Origin)
	if r.Design != DesignSuper && (r.Members != 0 || r.Member != 0 || len(r.Proof) != 0) {
		return wrong("has no members")
	}
	switch r.Design {
	case DesignHead:
		if len(a.Topics) != 3 || a.Topics[2] != log || !bytes.Equal(a.Data, head[:]) {
			return wrong("is of another log or head")
		}
	case DesignMapping:
		var size [32]byte
		binary.BigEndian.PutUint64(size[24:], c.Size)
		if len(a.Topics) != 3 || a.Topics[2] != size || len(a.Data) != 64 || !bytes.Equal(a.Data[:32], head[:]) {
			return wrong("is of another size or head")
		}
	case DesignSuper:
		var want [64]byte
		if len(a.Topics) != 2 || len(a.Data) != 64 {
			return wrong("isn't a batch's")
		}
		copy(want[:], a.Data[:32])
		binary.BigEndian.PutUint64(want[56:], r.Members)
		if !bytes.Equal(want[:], a.Data) {
			return wrong("is of another number of members")
		}
		return sender, merkle.VerifyInclusion(merkle.LeafHash(SuperLeaf(c)), r.Member, r.Members, r.Proof, merkle.Hash(a.Data[:32]))
	}
	return sender, nil
}

// evmRoot is what a verifier knows of a chain.
type evmRoot struct {
	root             *Root
	contract, sender [20]byte
	blocks           map[merkle.Hash]bool
}

func newEVMRoot(r *Root) (checker, error) {
	out := evmRoot{root: r, blocks: map[merkle.Hash]bool{}}
	if _, ok := eventTopics[r.Design]; !ok {
		return nil, fmt.Errorf("%w: there is no design %.40q: head, super, mapping", ErrSyntax, r.Design)
	}
	if err := hexInto(out.contract[:], r.Contract); err != nil {
		return nil, fmt.Errorf("contract: %w", err)
	}
	if err := hexInto(out.sender[:], r.Sender); err != nil {
		return nil, fmt.Errorf("sender: %w", err)
	}
	for _, s := range r.Blocks {
		var h merkle.Hash
		if err := hexInto(h[:], s); err != nil {
			return nil, fmt.Errorf("block: %w", err)
		}
		out.blocks[h] = true
	}
	return out, nil
}

// hexInto reads 0x and exactly as many bytes as dst has.
func hexInto(dst []byte, s string) error {
	digits, ok := strings.CutPrefix(s, "0x")
	if b, err := hex.DecodeString(digits); !ok || err != nil || copy(dst, b) != len(b) || len(b) != len(dst) {
		return fmt.Errorf("%w: %.80q isn't 0x and %d hexadecimal digits", ErrSyntax, s, 2*len(dst))
	}
	return nil
}

func (r evmRoot) check(e *Evidence) (vouched, error) {
	p, err := ParseReceipt(e.Data)
	if err != nil {
		return vouched{}, err
	}
	a, err := p.Open()
	if err != nil {
		return vouched{}, err
	}
	sender, err := a.Commits(p, e.Note.Checkpoint)
	if err != nil {
		return vouched{}, err
	}
	switch {
	case p.Chain != r.root.Chain || p.Design != r.root.Design || a.Contract != r.contract:
		return vouched{}, fmt.Errorf("%w: it is of chain %d, design %s, contract 0x%x", ErrNoRoot, p.Chain, p.Design, a.Contract)
	case sender != r.sender:
		return vouched{}, fmt.Errorf("%w: it was sent by 0x%x", ErrNoRoot, sender)
	case !r.blocks[a.Block]:
		return vouched{}, fmt.Errorf("%w: whether 0x%x is block %d of chain %d; ask a node or an explorer that you rely on, and add it to the root's blocks",
			ErrNoRoot, a.Block, a.Number, p.Chain)
	}
	v := vouched{time: a.Time, place: place{a.Number, p.Index, p.Log}}
	if r.root.Permissioned {
		v.note = "a permissioned chain: its operators, together, can rewrite it"
	}
	return v, nil
}
