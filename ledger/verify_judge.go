package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
)

// keysAt are the signing keys in force for a checkpoint of that size: those of the genesis, changed by every
// rotation in the epochs that it covers.
func (v *verification) keysAt(size uint64) []PublicKey {
	keys := v.gen.Keys
	for i := range v.notes {
		n := &v.notes[i]
		if n.rec.Type != TypeRotate || n.epoch >= size {
			continue
		}
		note, err := ParseRotateNote(n.payload)
		if err == nil {
			err = note.verify(v.gen.Origin(), &n.rec, keys)
		}
		if err != nil {
			v.report.tampered(&Flaw{n.epoch, n.rec.Seq, true, err.Error()})
			continue
		}
		keys = note.New
	}
	return keys
}

// judgeNotes reads the ledger's own records.
func (v *verification) judgeNotes() {
	r := v.report
	cover := &r.Claims.Coverage
	for i := range v.notes {
		n := &v.notes[i]
		bad := func(err error) { r.tampered(&Flaw{n.epoch, n.rec.Seq, true, err.Error()}) }
		switch n.rec.Type {
		case TypeOpen:
			note, err := ParseOpenNote(n.payload)
			if err != nil {
				bad(err)
				continue
			}
			if note.Torn() {
				cover.worse(StatusIncomplete, "before record %d the writer was cut off: %d bytes of records and %d of payloads were torn", n.rec.Seq, note.TornLog, note.TornBytes)
			} else if note.Recovered > 0 {
				cover.worse(StatusIncomplete, "before record %d the writer was cut off: %s recovered, what came after is lost", n.rec.Seq, count(note.Recovered, "record"))
			}
		case TypeGap:
			note, err := ParseGapNote(n.payload)
			if err != nil {
				bad(err)
				continue
			}
			cover.worse(StatusIncomplete, "record %d: the storage was full, refused were %s (%s in batches)", n.rec.Seq, count(note.Records, "record"), count(note.Events, "event"))
		}
	}
	if k := len(v.notes); k > 0 && v.last != nil {
		n := &v.notes[k-1]
		r.Closed = n.rec.Type == TypeClose && n.rec.Seq+1 == v.last.First+v.last.Count && r.Unsealed == 0
	}
	if !r.Closed {
		cover.worse(StatusIncomplete, "the log doesn't end with a close record: it is still written, or its end is missing (a crash or a cut)")
	}
}

// judgeHeads checks signatures and roots of trust.
func (v *verification) judgeHeads() {
	r := v.report
	c := &r.Claims
	sized := v.tree.Size()
	keys := v.keysAt(sized + 1)
	covered := uint64(0)
	if v.note != nil {
		keys = v.keysAt(v.note.Size)
		if v.signed(keys) {
			covered = v.note.Size
			c.Integrity.restsOn("the log's keys, over a checkpoint of %s", count(v.note.Size, "epoch"))
		}
	}
	for _, p := range v.opts.Pinned {
		if p.Size <= sized && p.Origin == r.Origin {
			covered = max(covered, p.Size)
			c.Integrity.restsOn("%s, over %s", p.Source, count(p.Size, "epoch"))
		}
	}
	if covered < sized {
		c.Integrity.worse(StatusIncomplete, "%d of %s, the last, under no checkpoint yet", sized-covered, count(sized, "epoch"))
	}
	if sized == 0 {
		c.Integrity.worse(StatusIncomplete, "no epoch is sealed")
	}
	c.Order.restsOn("the chain of record digests, under the same heads as integrity")
	v.judgeIdentity(keys)
	v.judgeTime(sized)
}

// signed tells whether every key in force signed the log's checkpoint.
func (v *verification) signed(keys []PublicKey) bool {
	ok := true
	for _, k := range keys {
		if _, err := k.named(v.gen.Origin()).Verify(v.note); err != nil {
			v.report.Claims.Integrity.worse(StatusTampered, "the log's checkpoint: %v", err)
			ok = false
		}
	}
	return ok
}

func (v *verification) judgeIdentity(inForce []PublicKey) {
	id := &v.report.Claims.Identity
	rooted := false
	if v.opts.LogID != nil && id.Status != StatusTampered {
		id.restsOn("the log's identity %s, given by the verifier", hexOf(*v.opts.LogID))
		rooted = true
	}
	if known := v.trustedKey(inForce); known != nil {
		id.restsOn("the %s key %x…, %s", known.Alg, known.Public[:8], cmp.Or(v.opts.KeysFrom, "given by the verifier"))
		rooted = true
	} else if len(v.opts.Keys) > 0 {
		id.worse(StatusUnverifiable, "none of the keys %s is one of the log's", cmp.Or(v.opts.KeysFrom, "given by the verifier"))
	}
	for _, p := range v.opts.Pinned {
		if p.Origin == v.gen.Origin() {
			id.restsOn("%s", p.Source)
			rooted = true
		}
	}
	if n := v.cosigned(); n > 0 {
		id.restsOn("%s", count(uint64(n), "witness"))
		rooted = true
	}
	switch {
	case rooted:
	case v.opts.Self:
		id.restsOn("the log's own keys: who rewrote all of it under his own would pass")
	default:
		id.worse(StatusUnverifiable, "no independent root: give the log's identity, a key of the recorder, or a head known from elsewhere")
	}
}

// trustedKey is a key of the verifier's that the log was made with or is signed with.
func (v *verification) trustedKey(inForce []PublicKey) *PublicKey {
	for _, set := range [][]PublicKey{inForce, v.gen.Keys} {
		for i := range v.opts.Keys {
			k := &v.opts.Keys[i]
			if slices.ContainsFunc(set, func(o PublicKey) bool { return o.Alg == k.Alg && slices.Equal(o.Public, k.Public) }) {
				return k
			}
		}
	}
	return nil
}

// cosigned counts the witnesses that cosigned the log's checkpoint, 0 where they are fewer than the quorum.
func (v *verification) cosigned() int {
	if v.note == nil {
		return 0
	}
	n := 0
	for _, k := range v.opts.Witnesses {
		if _, err := k.Verify(v.note); err == nil {
			n++
		}
	}
	if n < max(v.opts.Quorum, 1) {
		return 0
	}
	return n
}

// judgeTime looks for times that don't rest on the recorder.
func (v *verification) judgeTime(size uint64) {
	c := &v.report.Claims.ExistedBy
	var times []string
	covered := uint64(0)
	for _, p := range v.opts.Pinned {
		if p.Time != 0 && p.Origin == v.gen.Origin() && p.Size <= size {
			times = append(times, fmt.Sprintf("%s: the first %s existed by %s", p.Source, count(p.Size, "epoch"), stamp(p.Time)))
			covered = max(covered, p.Size)
		}
	}
	if v.cosigned() > 0 {
		for _, k := range v.opts.Witnesses {
			if sec, err := k.Verify(v.note); err == nil && sec > 0 {
				times = append(times, fmt.Sprintf("witness %s: the first %s existed by %s", k.Name, count(v.note.Size, "epoch"), stamp(sec*int64(time.Second))))
				covered = max(covered, v.note.Size)
			}
		}
	}
	sort.Strings(times)
	c.RestsOn = append(c.RestsOn, times...)
	switch {
	case len(times) == 0:
		c.worse(StatusUnverifiable, "no time but that of the recorder's own clock")
	case covered < size:
		c.worse(StatusIncomplete, "nothing but the recorder's clock dates the last %s", count(size-covered, "epoch"))
	}
}

// count is a number with its noun.
func count(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "s") {
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func stamp(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339) }

// judgeContent looks at what came of opening payloads.
func (v *verification) judgeContent() {
	r := v.report
	c := &r.Claims.Content
	k := &v.content
	r.Opened, r.Erased = k.opened, k.erased
	if k.noKey > 0 {
		c.worse(StatusUnverifiable, "closed to the keys at hand: %s", count(k.noKey, "payload"))
	}
	if n := v.unrecordedErasures(); n > 0 {
		c.worse(StatusIncomplete, "the keys of %s are gone, and no record says that they were destroyed", count(n, "payload"))
	}
	users := r.Records - uint64(len(v.notes))
	switch {
	case k.opened > 0:
		c.restsOn("%s opened and compared with what was committed to", count(k.opened, "payload"))
	case users == 0 && c.Status == StatusVerified:
		c.restsOn("there are no payloads but the ledger's own")
	case len(v.opts.Identities) == 0:
		c.worse(StatusUnverifiable, "payloads weren't opened, only their commitments are covered")
	}
	if k.erased > 0 {
		c.restsOn("erased: %s", count(k.erased, "payload"))
	}
}

// brokenErasures looks for wraps that a record says were destroyed and that are still there.
func (v *verification) brokenErasures(note *EraseNote) {
	c := &v.report.Claims.Content
	k := &keyring{fsys: v.fsys, id: v.gen.ID()}
	for _, epoch := range note.Epochs {
		i := sort.Search(len(v.borders), func(i int) bool { return v.borders[i].epoch > epoch })
		if i == 0 {
			continue
		}
		if _, err := k.wrap(v.borders[i-1].segment, epoch); err == nil {
			c.worse(StatusIncomplete, "a record says that the keys of epoch %d were destroyed, but their wrap is still there", epoch)
		}
	}
}

// unrecordedErasures counts payloads whose keys are gone without a record of it.
func (v *verification) unrecordedErasures() uint64 {
	var n uint64
	events := map[uint64]bool{}
	epochs := map[uint64]bool{}
	for i := range v.notes {
		if v.notes[i].rec.Type != TypeErase {
			continue
		}
		note, err := ParseEraseNote(v.notes[i].payload)
		if err != nil {
			v.report.tampered(&Flaw{v.notes[i].epoch, v.notes[i].rec.Seq, true, err.Error()})
			continue
		}
		v.brokenErasures(note)
		for _, e := range note.Epochs {
			epochs[e] = true
		}
		for _, e := range note.Events {
			events[e] = true
		}
	}
	for epoch, k := range v.content.epochs {
		if !epochs[epoch] {
			n += k
		}
	}
	for _, seq := range v.content.events {
		if !events[seq] {
			n++
		}
	}
	return n
}

// judgeCoverage adds up the sensors' counters.
func (v *verification) judgeCoverage() {
	r := v.report
	c := &r.Claims.Coverage
	totals := v.totals
	if totals == nil {
		totals = map[string]Coverage{}
	}
	for _, k := range v.current {
		t := totals[k.Sensor]
		totals[k.Sensor] = Coverage{k.Sensor, t.Seen + k.Seen, t.Emitted + k.Emitted, t.Lost + k.Lost}
	}
	for _, t := range totals {
		r.Sensors = append(r.Sensors, t)
	}
	sort.Slice(r.Sensors, func(i, j int) bool { return r.Sensors[i].Sensor < r.Sensors[j].Sensor })
	for _, s := range r.Sensors {
		if s.Lost > 0 {
			c.worse(StatusIncomplete, "sensor %q lost %d of %d events", s.Sensor, s.Lost, s.Seen+s.Lost)
		}
	}
	c.restsOn("the sensors' own counters and the recorder's honesty at the time: no log proves what it wasn't given")
}
