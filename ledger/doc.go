// Package ledger keeps a log that nobody, its keeper included, can change unnoticed; whose payloads are private, can
// be disclosed one by one, and can be erased without breaking a proof; and that a stranger can verify.
//
// It follows the Agent Flight Recorder (arXiv 2609.01931) and closes its holes. docs/FORMAT.md specifies every byte,
// docs/THREAT-MODEL.md says what the log proves, under which assumptions, and what it doesn't.
//
// # The construction in short
//
// A [Record] is a few fields in deterministic CBOR: its place in the log, random id, type, clear metadata, times,
// predecessor's digest and a commitment to the payload. Its digest is SHA-256(0x00 ‖ record). Records form a chain
// and, a hundred at a time, an epoch. An epoch's [Header] commits to everything about it, the RFC 9162 tree over its
// records' digests first of all. The headers are the leaves of one more RFC 9162 tree, and its head, as a C2SP
// checkpoint signed by every key that the log's [Genesis] names, is the one small object that witnesses, anchors and
// mirrors deal in. The log's identity is the hash of its genesis.
//
// Payloads are stored apart. Every epoch has a random secret, from which each record's key follows; it is kept only
// as an age file to the log's recipients, and wiped from memory when the epoch is sealed. A payload's commitment is
// salted with its key, so that it can't be guessed. Whoever is given the key of one record can open and check that
// record's payload and no other. Where every wrap of an epoch's secret is destroyed its payloads are gone for good,
// and every proof still holds. Events that come by the thousand are appended as a batch: one record, whose
// commitment is the head of a tree over salted digests, so that each event can still be disclosed alone.
//
// # Use
//
//	w, err := ledger.Create(posixstore.New(dir), ledger.Options{Signers: …, Recipients: …})
//	seq, err := w.Append(ctx, ledger.Entry{Type: ledger.TypeUser, Kind: "file_read", Payload: action})
//	seq, err = w.AppendBatch(ctx, ledger.Entry{Type: ledger.TypeUser + 1, Kind: "kernel"}, events)
//	err = w.Close()
//
//	r, err := ledger.OpenReader(os.DirFS(dir), identity)
//	for rec, err := range r.Records(0) { payload, err := r.Payload(rec) … }
//	bundle, err := r.Disclose([]ledger.Disclose{{Seq: 17}})
//
//	report, err := ledger.Verify(ctx, os.DirFS(dir), ledger.VerifyOptions{Trust: …})
//	report = bundle.Verify(trust)
//
// # What is trusted
//
// Nothing that the store holds: it may be read, changed, cut or put back to an earlier state by an attacker, and
// verification says so as far as the verifier's own roots of trust reach ([Trust]). The process that writes is
// trusted for what it appends while it appends it, and for nothing after: an attacker who takes it over can append
// falsehoods, but neither read nor change what was sealed, signed and published before.
//
// The package does no I/O of its own: a [Store] of five methods is handed in, a reader needs an [fs.FS] only.
package ledger
