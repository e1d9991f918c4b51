package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"sort"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/merkle"
)

// Trust is what the verifier brings along: roots that whoever keeps the log doesn't choose.
type Trust struct {
	// LogID is the identity that the log must have.
	LogID *Hash
	// Keys are signing keys that are known to be the recorder's. Their names don't matter.
	Keys []PublicKey
	// KeysFrom says for people where Keys are from. "": "given by the verifier".
	KeysFrom string
	// Pinned are heads of the log that the verifier knows from elsewhere: anchored, mirrored, written down.
	Pinned []Pinned
	// Witnesses are cosigners that the verifier relies on; Quorum of them must have cosigned the log's checkpoint.
	Witnesses []checkpoint.Key
	Quorum    int
	// Self takes the log's own keys as the root of trust. This finds damage, not forgery: who rewrites the whole
	// log under keys of his own passes.
	Self bool
}

// Pinned is a head known from outside.
type Pinned struct {
	checkpoint.Checkpoint
	Source string // for people: "anchor on …", "mirror at …", "given by …"
	Time   int64  // when the source vouches to have seen it; nanoseconds since 1970 UTC, 0: it vouches for none
}

// VerifyOptions say what to verify and against what.
type VerifyOptions struct {
	Trust
	// Identities open payloads. Without them only structure and commitments are verified.
	Identities []age.Identity
	// Payloads also checks, without keys, that the stored payloads are all there.
	Payloads bool
	// Require names claims that must be verified for the verdict to be "verified", besides integrity, order,
	// identity and coverage.
	Require []string
	// Workers is how many epochs are verified at a time. Default: the number of processors.
	Workers int
}

// Verify verifies a whole log. The error is about reading it; what the log is worth is in the report.
func Verify(ctx context.Context, fsys fs.FS, opts VerifyOptions) (*Report, error) {
	v := &verification{fsys: fsys, opts: opts, report: &Report{}}
	v.files.fsys = fsys
	defer v.files.close()
	for _, name := range opts.Require {
		if !slices.Contains(claimNames, name) {
			return nil, fmt.Errorf("there is no claim %q: they are %v", name, claimNames)
		}
	}
	for _, claim := range v.report.Claims.all() {
		claim.Status = StatusVerified
	}
	err := v.genesis()
	if errors.Is(err, ErrDamaged) {
		return Unreadable(err), nil
	}
	if err == nil {
		err = v.run(ctx)
	}
	if err != nil {
		return nil, err
	}
	v.report.conclude(append([]string{"integrity", "order", "identity", "coverage"}, opts.Require...))
	return v.report, nil
}

// verification is the state of Verify.
type verification struct {
	fsys   fs.FS
	opts   VerifyOptions
	report *Report
	gen    *Genesis
	note   *checkpoint.Note // the log's own checkpoint
	files  span

	tree    merkle.Range
	good    uint64 // epochs under a head that matched
	goodSeq uint64
	notes   []systemNote
	content contentCount
	last    *entry
	borders []border            // where segments begin
	totals  map[string]Coverage // of the incarnations before
	current []Coverage          // of the present incarnation
}

// border is the first epoch of a segment.
type border struct {
	epoch, segment uint64
}

// systemNote is one of the ledger's own records.
type systemNote struct {
	rec     Record
	epoch   uint64
	payload []byte
}

// contentCount is what came of opening payloads.
type contentCount struct {
	opened, erased, noKey uint64
	epochs                map[uint64]uint64 // payloads without keys in epochs that have no wrap
	events                []uint64          // and in epochs whose wrap leaves them out
}

// genesis reads the genesis. The error wraps ErrDamaged where there is a log, but no genesis that is one.
func (v *verification) genesis() error {
	r := v.report
	gen, err := loadGenesis(v.fsys)
	if errors.Is(err, fs.ErrNotExist) {
		for _, name := range []string{epochsName, checkpointName, logName(0)} {
			if _, serr := fs.Stat(v.fsys, name); serr == nil {
				return fmt.Errorf("%w: its genesis is missing", ErrDamaged)
			}
		}
		return fmt.Errorf("there is no log here: %w", err)
	}
	if err != nil {
		return err
	}
	v.gen = gen
	id := gen.ID()
	r.Log, r.Origin, r.Recorder, r.Profile = hexOf(id), gen.Origin(), gen.Recorder, gen.Profile.String()
	if want := v.opts.LogID; want != nil && id != *want {
		r.Claims.Identity.worse(StatusTampered, "this is another log: its identity is %s, not %s", hexOf(id), hexOf(*want))
	}
	return nil
}

// tampered notes a structural flaw: neither integrity nor order hold any more.
func (r *Report) tampered(f *Flaw) {
	r.bad(f)
	r.Claims.Integrity.worse(StatusTampered, "%s", f.Error())
	r.Claims.Order.worse(StatusTampered, "%s", f.Error())
}

// cut notes that something is missing in a place where it may never have been published.
func (r *Report) cut(format string, args ...any) {
	r.Claims.Integrity.worse(StatusIncomplete, format, args...)
	r.Claims.Coverage.worse(StatusIncomplete, format, args...)
}

func (v *verification) run(ctx context.Context) error {
	if err := v.loadCheckpoint(); err != nil {
		return err
	}
	if err := v.epochs(ctx); err != nil {
		return err
	}
	if err := v.tail(); err != nil {
		return err
	}
	v.judgeNotes()
	v.judgeHeads()
	v.judgeContent()
	v.judgeCoverage()
	return nil
}

func (v *verification) loadCheckpoint() error {
	b, err := readFile(v.fsys, checkpointName, 256<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	n, err := checkpoint.Parse(b)
	if err == nil && n.Origin != v.gen.Origin() {
		err = fmt.Errorf("it is that of %s", n.Origin)
	}
	if err != nil {
		v.report.Claims.Integrity.worse(StatusTampered, "the log's checkpoint: %v", err)
		return nil
	}
	v.note, v.report.Checkpoint = n, n.Size
	return nil
}

// heads are the heads that the log must pass through, by size.
func (v *verification) heads() map[uint64][]Head {
	m := map[uint64][]Head{}
	if v.note != nil {
		m[v.note.Size] = append(m[v.note.Size], Head{v.note.Size, hexOf(v.note.Root), ownCheckpoint, 0})
	}
	for _, p := range v.opts.Pinned {
		if p.Origin != v.gen.Origin() {
			v.report.Claims.Identity.worse(StatusTampered, "%s is of another log, %s", p.Source, p.Origin)
			continue
		}
		m[p.Size] = append(m[p.Size], Head{p.Size, hexOf(p.Root), p.Source, p.Time})
	}
	return m
}

// epochs reads the epochs file and has each epoch's records verified, as many at a time as there are workers.
func (v *verification) epochs(ctx context.Context) error {
	s, err := scanEpochs(v.fsys, v.gen)
	if err != nil {
		return err
	}
	defer s.close()
	pool := v.startPool(ctx)
	scanErr := v.scanAll(s, pool)
	if err := pool.wait(v); err != nil {
		return err
	}
	v.report.Epochs = v.tree.Size()
	return scanErr
}

func (v *verification) scanAll(s *epochScanner, pool *pool) error {
	r := v.report
	heads := v.heads()
	published := uint64(0)
	for size := range heads {
		published = max(published, size)
	}
	for {
		root := v.tree.Root()
		v.compare(heads[v.tree.Size()], hexOf(root), s.next)
		delete(heads, v.tree.Size())
		e, err := s.scan()
		if err == io.EOF || errors.Is(err, errTorn) {
			if size := v.tree.Size(); size < published {
				for _, hs := range heads {
					for _, h := range hs {
						r.tampered(&Flaw{size, s.next, false, fmt.Sprintf("it is missing: the log has %s, %s %d", count(size, "epoch"), h.Source, h.Size)})
					}
				}
			} else if err != io.EOF {
				r.cut("the epochs file ends inside epoch %d: a crash or a cut", s.epoch)
			}
			return nil
		}
		var flaw *Flaw
		if errors.As(err, &flaw) {
			r.tampered(flaw)
			return nil
		}
		if err != nil {
			return err
		}
		if err := v.betweenEpochs(s, e); err != nil {
			return err
		}
		v.tree.Append(e.hash)
		if !pool.submit(e, e.Epoch < published) {
			return nil
		}
	}
}

// compare compares the tree with the heads of its size. Where one differs, what is bad lies after the last head that
// agreed; the log's own checkpoint counts as such only where the verifier brought none.
func (v *verification) compare(heads []Head, root string, next uint64) {
	good, goodSeq := v.good, v.goodSeq
	for _, h := range heads {
		v.report.Heads = append(v.report.Heads, h)
		if h.Root != root {
			v.report.tampered(&Flaw{v.good, v.goodSeq, false, fmt.Sprintf("the tree over the first %d epochs isn't that of %s", h.Size, h.Source)})
		} else if h.Source != ownCheckpoint || len(v.opts.Pinned) == 0 {
			good, goodSeq = h.Size, next
		}
	}
	v.good, v.goodSeq = good, goodSeq
}

const ownCheckpoint = "the log's own checkpoint"

// betweenEpochs looks at what two headers say together.
func (v *verification) betweenEpochs(s *epochScanner, e *entry) error {
	r := v.report
	last := v.last
	v.last = e
	if last == nil || last.segment != e.segment {
		v.borders = append(v.borders, border{e.Epoch, e.segment})
	}
	if last == nil || last.Incarnation != e.Incarnation {
		for _, c := range v.current {
			if v.totals == nil {
				v.totals = map[string]Coverage{}
			}
			t := v.totals[c.Sensor]
			v.totals[c.Sensor] = Coverage{c.Sensor, t.Seen + c.Seen, t.Emitted + c.Emitted, t.Lost + c.Lost}
		}
		v.current = nil
	}
	if last != nil && last.Incarnation == e.Incarnation && last.Reason != SealRecovered && e.Reason != SealRecovered {
		if d := time.Duration(e.Mono - last.Mono); d > v.gen.Heartbeat {
			r.Claims.Coverage.worse(StatusIncomplete, "nothing was sealed for %v before epoch %d, where the log promises %v", d, e.Epoch, v.gen.Heartbeat)
		} else if d < 0 {
			r.Claims.Coverage.worse(StatusIncomplete, "the monotonic clock ran backwards before epoch %d", e.Epoch)
		}
	}
	if last != nil && e.segment != last.segment {
		if err := v.exactSize(last.segment, last.logOff+last.logLen, last.payOff+last.payLen, e.Epoch, e.First); err != nil {
			return err
		}
	}
	for _, c := range v.current {
		i := sort.Search(len(e.Coverage), func(i int) bool { return e.Coverage[i].Sensor >= c.Sensor })
		if e.Reason == SealRecovered {
			break
		}
		if i == len(e.Coverage) || e.Coverage[i].Sensor != c.Sensor || e.Coverage[i].Seen < c.Seen ||
			e.Coverage[i].Emitted < c.Emitted || e.Coverage[i].Lost < c.Lost {
			r.Claims.Coverage.worse(StatusIncomplete, "the counters of sensor %q fell in epoch %d", c.Sensor, e.Epoch)
		}
	}
	if e.Reason != SealRecovered {
		v.current = e.Coverage
	}
	return nil
}

// exactSize makes sure that a segment holds what its epochs account for and nothing else.
func (v *verification) exactSize(segment, logLen, payLen, epoch, seq uint64) error {
	for name, want := range map[string]uint64{logName(segment): logLen, payloadName(segment): payLen} {
		info, err := fs.Stat(v.fsys, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its epochs say so themselves
		}
		if err != nil {
			return err
		}
		if uint64(info.Size()) > want {
			v.report.tampered(&Flaw{epoch, seq, false, fmt.Sprintf("%s has %d bytes that belong to no epoch", name, uint64(info.Size())-want)})
		}
	}
	return nil
}

// tail looks at what comes after the last sealed epoch.
func (v *verification) tail() error {
	r := v.report
	id := v.gen.ID()
	t := tailMark{head: id}
	if v.last != nil {
		e := v.last
		t = tailMark{place{e.segment, e.logOff + e.logLen, e.payOff + e.payLen}, e.First + e.Count, e.Epoch + 1, e.Head}
	}
	if r.Claims.Integrity.Status == StatusTampered {
		return nil
	}
	rd := &Reader{fsys: v.fsys, gen: v.gen, id: id}
	var err error
	rd.tailRecords(&v.files, t, t.next, func(rec *ReadRecord, e error) bool {
		if err = e; e != nil {
			return false
		}
		r.Unsealed++
		return true
	})
	if err != nil {
		return err
	}
	if r.Unsealed > 0 {
		r.cut("%d records after the last sealed epoch rest on nothing: the log is being written, or its writer was cut off", r.Unsealed)
		return nil
	}
	for name, want := range map[string]uint64{logName(t.segment.segment): t.segment.logLen, payloadName(t.segment.segment): t.segment.payLen} {
		info, err := fs.Stat(v.fsys, name)
		if err == nil && uint64(info.Size()) > want {
			r.cut("%s has %d bytes after the last sealed epoch that belong to no record: a crash or a cut", name, uint64(info.Size())-want)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// pool verifies epochs side by side.
type pool struct {
	jobs    chan epochJob
	results chan epochResult
	workers sync.WaitGroup
	done    chan struct{}
	stop    context.CancelFunc
	ctx     context.Context
	err     error
	flaws   []*Flaw
	lost    []*Flaw
	notes   []systemNote
	records uint64
	events  uint64
	content contentCount
	bad     []*Flaw // of payloads
}

type epochJob struct {
	*entry
	published bool // a checkpoint covers it
}

type epochResult struct {
	flaw    *Flaw
	lost    *Flaw // not a flaw: bytes that were never published are missing
	err     error
	notes   []systemNote
	records uint64
	events  uint64
	content contentCount
	bad     *Flaw
}

func (v *verification) startPool(ctx context.Context) *pool {
	n := v.opts.Workers
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	ctx, stop := context.WithCancel(ctx)
	p := &pool{jobs: make(chan epochJob, 4*n), results: make(chan epochResult, 4*n), done: make(chan struct{}), stop: stop, ctx: ctx}
	for range n {
		p.workers.Add(1)
		go func() {
			defer p.workers.Done()
			w := epochWorker{v: v, files: span{fsys: v.fsys}, payloads: span{fsys: v.fsys}}
			w.keys = keyring{fsys: v.fsys, id: v.gen.ID(), identities: v.opts.Identities}
			defer w.keys.forget()
			defer w.files.close()
			defer w.payloads.close()
			for j := range p.jobs {
				p.results <- w.verify(j)
			}
		}()
	}
	go p.collect()
	return p
}

func (p *pool) collect() {
	defer close(p.done)
	for r := range p.results {
		if r.err != nil && p.err == nil {
			p.err = r.err
			p.stop()
		}
		if r.flaw != nil {
			p.flaws = append(p.flaws, r.flaw)
		}
		if r.lost != nil {
			p.lost = append(p.lost, r.lost)
		}
		if r.bad != nil {
			p.bad = append(p.bad, r.bad)
		}
		p.notes = append(p.notes, r.notes...)
		p.records += r.records
		p.events += r.events
		p.content.opened += r.content.opened
		p.content.noKey += r.content.noKey
		p.content.erased += r.content.erased
		p.content.events = append(p.content.events, r.content.events...)
		for epoch, k := range r.content.epochs {
			if p.content.epochs == nil {
				p.content.epochs = map[uint64]uint64{}
			}
			p.content.epochs[epoch] += k
		}
	}
}

func (p *pool) submit(e *entry, published bool) bool {
	select {
	case p.jobs <- epochJob{e, published}:
		return true
	case <-p.ctx.Done():
		return false
	}
}

func (p *pool) wait(v *verification) error {
	canceled := p.ctx.Err()
	close(p.jobs)
	p.workers.Wait()
	close(p.results)
	<-p.done
	p.stop()
	if p.err != nil {
		return p.err
	}
	if canceled != nil {
		return fmt.Errorf("verification ended early: %w", canceled)
	}
	r := v.report
	for _, f := range p.flaws {
		r.tampered(f)
	}
	for _, f := range p.bad {
		r.bad(f)
		r.Claims.Content.worse(StatusTampered, "%s", f.Error())
	}
	sort.Slice(p.lost, func(i, j int) bool { return p.lost[i].Epoch < p.lost[j].Epoch })
	for _, f := range p.lost {
		r.cut("%s; no checkpoint covers it: a crash or a cut", f.Error())
	}
	sort.Slice(p.notes, func(i, j int) bool { return p.notes[i].rec.Seq < p.notes[j].rec.Seq })
	v.notes, v.content = p.notes, p.content
	r.Records, r.Events = p.records, p.events
	return nil
}
