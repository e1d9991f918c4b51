// Package anchor commits heads of a log outside its operator's reach, and keeps what a stranger needs to check that.
//
// What is anchored is the newest checkpoint: the head of the tree over all epochs, so that one anchor covers all that
// came before it. A [Mechanism] is one way to do it; its packages are below this one. A [Runner] works beside the
// recorder: it reads the checkpoint that the log's writer publishes and so never slows an append. Its queue is the log
// itself: at most one head is under way per mechanism, and when it is done the newest one is next, so that an outage costs
// one late anchor, however many heads it lasted.
//
//	RUN/anchors/NAME.json           what is under way, replaced in one piece
//	RUN/anchors/NAME-SIZE.proof     [proof.Evidence] of a head of that size
//
// What anchors are worth, package [github.com/bodycam-dev/bodycam/ledger/proof] judges, without a network.
package anchor

import (
	"context"
	"errors"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
	"github.com/bodycam-dev/bodycam/ledger/proof"
)

// ErrConflict is wrapped where the outside holds a commitment that this head doesn't continue. To try again is of no
// use: there are two histories, or two writers.
var ErrConflict = errors.New("the anchor holds another history of this log")

// State is how far a head has come.
type State string

// The states. A chain knows all of them; where to have the answer is to have the anchor, the first is followed by the last.
const (
	Pending   State = "pending"   // prepared and stored, perhaps sent
	Submitted State = "submitted" // known to have been taken
	Included  State = "included"  // in a block that can still go away
	Safe      State = "safe"
	Orphaned  State = "orphaned" // was in a block that went away; it is sent again
	Final     State = "final"
	Conflict  State = "conflict" // see ErrConflict
)

// Head is what is anchored.
type Head struct {
	*checkpoint.Note
	// Consistency is the proof that the tree of size old is a prefix of this head's.
	Consistency func(old uint64) ([]merkle.Hash, error)
	// RootAt is the head of the first size epochs.
	RootAt func(size uint64) (merkle.Hash, error)
}

// Step is what one call of [Mechanism.Advance] came to.
type Step struct {
	State State
	// Ticket takes the place of the one that was given, if it isn't nil. It is on stable storage before the next call.
	Ticket []byte
	// Evidence is there once the anchor can be checked offline, and must be there when the state is Final.
	Evidence *proof.Evidence
	// Cost is what the anchor cost so far, in the mechanism's unit.
	Cost float64
	// Detail is for people: a transaction's hash, a serial number.
	Detail string
}

// Mechanism is one way of anchoring.
//
// A mechanism MUST NOT anchor a head twice where the process dies between any two of these calls, or within one, and the
// same calls are made again with what was stored. It MUST return an error that wraps [ErrConflict] where to try again is of
// no use, and [context.Canceled] or another error where it may be tried again.
type Mechanism interface {
	// Kind is one of the kinds of package proof.
	Kind() string
	// Prepare returns a ticket: whatever it takes to send this head. Nothing may leave the machine yet. last is the
	// ticket of the head before, nil for the first.
	Prepare(ctx context.Context, h Head, last []byte) (ticket []byte, err error)
	// Advance takes a head one step further: sends what a ticket says, or asks how it stands. The ticket is on stable
	// storage. It is called again until the state is Final.
	Advance(ctx context.Context, h Head, ticket []byte) (Step, error)
}
