package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/delegation"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
	"github.com/bodycam-dev/bodycam/ledger/regular"
)

// RecordDelegation is the type of records about work that is handed from one recorded agent to another.
const RecordDelegation = delegation.RecordType

// Party is the run's recorder as one side of delegations; signers are those that the run's ledger is sealed by. It is nil
// where the run has no ledger.
func (w *Writer) Party(signers []checkpoint.Signer) *delegation.Party {
	if w.seal == nil {
		return nil
	}
	return delegation.New(w.seal.log, regular.FS(w.dir), signers)
}

// Extend opens the ledger of a run that has ended, lets a party append to it, and ends it again. opts holds the log's
// signers and recipients.
func (r *Run) Extend(opts ledger.Options, work func(*delegation.Party) error) error {
	w, err := ledger.Open(posixstore.New(r.Dir), opts)
	if err != nil {
		return fmt.Errorf("opening the ledger of %s to go on with it: %w", r.Dir, err)
	}
	p := delegation.New(w, regular.FS(r.Dir), opts.Signers)
	err = work(p)
	return errors.Join(err, p.Close(), w.Close())
}

// Delegate hands work over in the name of a run that has ended.
func (r *Run) Delegate(ctx context.Context, opts ledger.Options, t delegation.Terms) (asked *delegation.Receipt, err error) {
	err = r.Extend(opts, func(p *delegation.Party) error {
		asked, err = p.Request(ctx, t)
		return err
	})
	return asked, err
}

// RecordApproval is the type of records that say that a person approved another record of the log, or didn't.
const RecordApproval = ledger.TypeUser + 7

// Append adds a record to the ledger of a run that has ended, and ends it again.
func (r *Run) Append(ctx context.Context, opts ledger.Options, e ledger.Entry) (seq uint64, err error) {
	w, err := ledger.Open(posixstore.New(r.Dir), opts)
	if err != nil {
		return 0, fmt.Errorf("opening the ledger of %s to go on with it: %w", r.Dir, err)
	}
	seq, err = w.Append(ctx, e)
	return seq, errors.Join(err, w.Close())
}
