package ledger

import (
	"errors"
	"fmt"
	"time"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

// Durability says when an append returns.
type Durability uint8

// The durabilities.
const (
	// DurableEpoch: the append returns at once; the record is in the operating system's hands after
	// Options.FlushEvery, and on stable storage once its epoch is sealed and that was written in turn.
	DurableEpoch Durability = iota
	// DurableNone: nothing is synced but what a checkpoint covers. After a crash of the machine whatever came after
	// the last checkpoint may be gone.
	DurableNone
	// DurableEvent: the append returns when its record is on stable storage. Appends that wait share one sync.
	DurableEvent
)

// FullPolicy says what an append does while the storage is full.
type FullPolicy uint8

// The policies.
const (
	// FullStop: the append fails with [ErrNoSpace]; the caller stops what it was about to do.
	FullStop FullPolicy = iota
	// FullGap: the append fails with [ErrDropped]; the caller goes on, and once there is room again the ledger
	// records how much it missed.
	FullGap
)

// Errors of a writer.
var (
	// ErrDropped: the record was refused for want of space and counted in a gap record to come ([FullGap]).
	ErrDropped = errors.New("not recorded for want of space, but counted")
	// ErrClosed: the writer was closed.
	ErrClosed = errors.New("the log is closed")
	// ErrFailed: writing or syncing failed, so that it isn't known what is on the storage. Close the writer and open
	// the log again: that recovers it to its last whole record.
	ErrFailed = errors.New("the log's writer failed")
	// ErrRolledBack: the store holds less than what was published or seen elsewhere. The log must not be continued:
	// two histories would result. Restore the missing part, or begin a new log.
	ErrRolledBack = errors.New("the log is older than what was published of it")
	// ErrDamaged: the store's bytes are not those of a log, or not those that were published.
	ErrDamaged = errors.New("the log is damaged")
	// ErrSigners tells that a log can't be continued with the signing keys at hand.
	ErrSigners = errors.New("the log stands under other signing keys")
	// ErrExists: the store holds a log already.
	ErrExists = errors.New("there is a log already")
)

// Options are a writer's settings. Only Signers and Recipients (or Clear) are needed.
type Options struct {
	// Name begins the log's origin. Fixed when the log is made. Default "bodycam".
	Name string
	// Recorder says who keeps the log. Fixed when the log is made; noted again for every incarnation.
	Recorder string
	// Profile chooses the equations. Fixed when the log is made. Default [ProfileDefault].
	Profile Profile
	// Signers sign the checkpoints, all of them each. Their public keys are fixed when the log is made and change
	// only by [Writer.Rotate].
	Signers []checkpoint.Signer
	// Recipients can read what is recorded: every epoch's secret is wrapped to them. age doesn't mix recipients
	// that resist quantum computers with such that don't.
	Recipients []age.Recipient
	// Clear records without encryption. It must be asked for.
	Clear bool

	// EpochRecords closes an epoch after so many records. Fixed when the log is made. Default 100.
	EpochRecords uint64
	// EpochAge closes an epoch that has records after that time. Fixed when the log is made. Default 10 s.
	EpochAge time.Duration
	// Heartbeat is the longest time between two seals that the log promises; an empty epoch is sealed at half of
	// it. Fixed when the log is made. Default 60 s.
	Heartbeat time.Duration
	// AnchorEvery is the anchor cadence that the log promises, 0 for none. Fixed when the log is made.
	AnchorEvery time.Duration

	// CheckpointEvery is the shortest time between two signed checkpoints, but for the last. Default 1 s.
	CheckpointEvery time.Duration
	// Durability of appends that don't ask for more.
	Durability Durability
	// OnFull is the policy while the storage is full.
	OnFull FullPolicy
	// FlushEvery is how long a record may wait in memory before it is handed to the store, a batch of 32 KiB or more
	// ten times as long. Default 5 ms.
	FlushEvery time.Duration
	// MaxPending bounds the bytes that wait in memory; appends then wait for the store. Default 16 MiB.
	MaxPending int
	// SegmentBytes ends a segment at the next seal. Default 64 MiB.
	SegmentBytes uint64

	// Now reads the clocks: wall in nanoseconds since 1970 UTC, mono in nanoseconds from any fixed point, such as
	// the machine's boot. Default: the system's clock, and the time since the writer was opened.
	Now func() (wall, mono int64)
	// Boot is the machine's boot id, which says when mono began. May be empty.
	Boot string
	// Seen are heads of this log that were anchored, witnessed or mirrored. Open fails with [ErrRolledBack] where
	// the store doesn't hold all they cover.
	Seen []checkpoint.Checkpoint

	// manual leaves out every goroutine, for tests that need one order of events: work is done in Seal, Sync and
	// Close.
	manual bool
	// perWrap is how many epochs' secrets one wrap holds. Default [perWrap]; one where manual.
	perWrap int
}

func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = "bodycam"
	}
	if o.Profile == 0 {
		o.Profile = ProfileDefault
	}
	if o.EpochRecords == 0 {
		o.EpochRecords = 100
	}
	for _, d := range []struct {
		p *time.Duration
		v time.Duration
	}{{&o.EpochAge, 10 * time.Second}, {&o.Heartbeat, time.Minute}, {&o.CheckpointEvery, time.Second}, {&o.FlushEvery, 5 * time.Millisecond}} {
		if *d.p == 0 {
			*d.p = d.v
		}
	}
	if o.perWrap == 0 && !o.manual {
		o.perWrap = perWrap
	}
	if o.MaxPending == 0 {
		o.MaxPending = 16 << 20
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.Now == nil {
		began := time.Now()
		o.Now = func() (int64, int64) {
			now := time.Now()
			return now.UnixNano(), int64(now.Sub(began))
		}
	}
	return o
}

func (o *Options) valid() error {
	if len(o.Signers) == 0 {
		return errors.New("a log needs at least one signer: set Options.Signers")
	}
	if len(o.Recipients) == 0 && !o.Clear {
		return errors.New("a log encrypts what it records: set Options.Recipients, or Options.Clear to record in the clear")
	}
	if len(o.Recipients) > 0 && o.Clear {
		return errors.New("Options.Clear and Options.Recipients exclude each other")
	}
	return nil
}

func (o *Options) publicKeys() []PublicKey {
	keys := make([]PublicKey, len(o.Signers))
	for i, s := range o.Signers {
		keys[i].Alg, keys[i].Public = s.Public()
	}
	return keys
}

func (o *Options) genesis() (*Genesis, error) {
	wall, _ := o.Now()
	g := &Genesis{
		Profile: o.Profile, Name: o.Name, Recorder: o.Recorder, Created: wall, Keys: o.publicKeys(),
		EpochRecords: o.EpochRecords, EpochAge: o.EpochAge, Heartbeat: o.Heartbeat, AnchorEvery: o.AnchorEvery,
	}
	copy(g.Nonce[:], randomBytes(len(g.Nonce)))
	if err := g.valid(); err != nil {
		return nil, fmt.Errorf("making a log: %w", err)
	}
	return g, nil
}
