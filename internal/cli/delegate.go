package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam/internal/anchor"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/session"
	"github.com/bodycam-dev/bodycam/internal/store"
	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/delegation"
	"github.com/bodycam-dev/bodycam/ledger/regular"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// delegateFlags are those of `run` that join it with other recorded agents.
type delegateFlags struct {
	to            []string
	scope, by     string
	serve, answer string
	port          uint16
	serveFor      time.Duration
	requests      int64
}

func (f *delegateFlags) add(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.to, "delegate", nil, "NAME:PORT=URL: another recorded agent that this one hands work to; each request goes with a signed receipt (repeatable)")
	fl.StringVar(&f.scope, "delegate-scope", "", "what those agents may do, in words that are signed (default: the request's method and path)")
	fl.StringVar(&f.by, "delegated-by", "", "`file` with the receipt of the request that this run carries out (bodycam delegate request)")
	fl.StringVar(&f.answer, "delegation-answer", "", "file to write the signed answer to, for whoever asked; it must not exist")
	fl.StringVar(&f.serve, "serve", "", "ADDRESS:PORT of this machine where others reach the agent, which is a server; receipts are taken and answered")
	fl.Uint16Var(&f.port, "port", 0, "with --serve: port on which the agent listens in its sandbox")
	fl.DurationVar(&f.serveFor, "serve-for", 0, "with --serve: how long (default: until interrupted or the agent ends)")
	fl.Int64Var(&f.requests, "serve-requests", 0, "with --serve: end after so many requests that came with a receipt")
}

// forwards are the agents that work is handed to, as the plan names them: they are reached by a name, like any forward.
func (f *delegateFlags) forwards() (out []kind.Forward, err error) {
	for _, text := range f.to {
		from, to, ok := strings.Cut(text, "=")
		fw, err := parseForward(from + "=0.0.0.0:1") // the same form of name and port
		if u, uerr := url.Parse(to); !ok || err != nil || uerr != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, usage("--delegate %s: want NAME:PORT=URL, as worker.example:80=http://10.0.0.7:9000", text)
		}
		fw.To = to
		out = append(out, fw)
	}
	return out, nil
}

// apply puts them into a run's options. done ends what was opened. receipts is the folder where this machine notes which
// receipts its runs accepted.
func (f *delegateFlags) apply(s *streams, receipts string, o *session.Options) (done func(), err error) {
	done = func() {}
	to, err := f.forwards()
	if err != nil {
		return done, err
	}
	if f.scope != "" && len(to) == 0 {
		return done, usage("--delegate-scope needs --delegate")
	}
	for _, fw := range to {
		o.Delegation.To = append(o.Delegation.To, session.Delegate{Host: fw.Host, Port: uint16(fw.Port), URL: fw.To, Scope: f.scope})
	}
	if f.by != "" {
		if o.Delegation.By, err = readReceipt(f.by); err != nil {
			return done, usage("--delegated-by: %w", err)
		}
		used := filepath.Join(receipts, fmt.Sprintf("%x", o.Delegation.By.Hash()))
		if b, err := os.ReadFile(used); err == nil {
			return done, withHint(usage("--delegated-by %s: a receipt serves once, and run %s of this machine accepted this one", f.by, strings.TrimSpace(string(b))),
				"for more work, have another request signed: bodycam delegate request")
		} else if !errors.Is(err, fs.ErrNotExist) {
			return done, environment(err)
		}
		o.Delegation.Accepted = func(r *delegation.Receipt) error {
			if err := os.MkdirAll(receipts, 0o700); err != nil {
				return err
			}
			if err := writeNewFile(used, []byte(o.ID+"\n"), 0o600); err != nil {
				return fmt.Errorf("noting that the receipt was accepted: %w", err)
			}
			if f.answer == "" {
				return nil
			}
			return writeNewFile(f.answer, []byte(r.HeaderValue()+"\n"), 0o644)
		}
	} else if f.answer != "" {
		return done, usage("--delegation-answer needs --delegated-by")
	}
	if f.serve == "" {
		if f.port != 0 || f.serveFor != 0 || f.requests != 0 {
			return done, usage("--port, --serve-for and --serve-requests need --serve")
		}
		return done, nil
	}
	if f.port == 0 {
		return done, usage("--serve needs --port: the one on which the agent listens")
	}
	l, err := net.Listen("tcp", f.serve)
	if err != nil {
		return done, environment(err)
	}
	o.Service = &session.Service{Port: f.port, Published: true, Idle: time.Millisecond, Use: func(ctx context.Context, in *session.Inside) error {
		if f.serveFor > 0 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, f.serveFor)
			defer stop()
		}
		fmt.Fprintf(s.err, "bodycam: the agent serves at http://%s\n", l.Addr())
		return in.Publish(ctx, l, f.requests)
	}}
	return func() { l.Close() }, nil
}

func readReceipt(file string) (*delegation.Receipt, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return delegation.ParseHeaderValue(strings.TrimSpace(string(b)))
}

func delegateCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delegate",
		Short: "Prove who handed work to whom, between recorded agents",
		Long: `Where a recorded agent hands work to another, the two recorders sign for it, and each ledger embeds what the other signed:

  over HTTP    bodycam run --delegate worker.example:80=http://HOST:9000 …      on the side that asks
               bodycam run --serve HOST:9000 --port 8080 …                      on the side of the server
  by a file    bodycam delegate request RUN --to NAME --scope TEXT -o FILE      on the side that asks
               bodycam run --delegated-by FILE …                                on the other

Neither agent sees the receipts, and can't forge or omit one. Afterwards "bodycam delegate prove A B" lets each ledger
embed proof that the other holds its part, and "bodycam verify A B" says what became of each delegation. docs/FORMAT.md,
section 20, is the format.` + exits("0  done", "2  usage", "3  a ledger could not be read or extended"),
		Example: `  bodycam delegate prove runs/A runs/B
  bodycam verify runs/A runs/B`,
	}
	cmd.AddCommand(delegateRequest(s), delegateProve(s), delegateBundle(s))
	return cmd
}

// extend is what it takes to go on with a run's ledger.
func (f *ringFlags) extend(r *store.Run) (ledger.Options, error) {
	var o ledger.Options
	ring, err := f.ring()
	if err != nil {
		return o, err
	}
	sets, err := f.signers()
	if err != nil {
		return o, err
	}
	signers, err := signersOf(r, sets)
	if err != nil {
		return o, err
	}
	seen, err := f.seen(r)
	if err != nil {
		return o, environment(err)
	}
	return ledger.Options{Recorder: recorderName(), Signers: signers, Recipients: ring.Recipients, Seen: seen}, nil
}

// goOn extends a run's ledger and tells this machine's log of runs.
func (f *ringFlags) goOn(ctx context.Context, r *store.Run, work func(*delegation.Party) error) error {
	o, err := f.extend(r)
	if err != nil {
		return err
	}
	if err := r.Extend(o, work); err != nil {
		return withHint(environment(err), "a run that is still recorded is extended by its own recorder: give it --delegate")
	}
	if err := f.noteRun(ctx, r); err != nil {
		return environment(err)
	}
	return nil
}

func delegateRequest(s *streams) *cobra.Command {
	var f ringFlags
	var t delegation.Terms
	var out string
	var parent int64
	cmd := &cobra.Command{
		Use:   "request RUN --to NAME --scope TEXT -o FILE",
		Short: "Hand work over in the name of a run that has ended",
		Long: `Record in a run's ledger that its agent hands work to another, and write the signed receipt of that to FILE: give it to
"bodycam run --delegated-by". A receipt serves once: a machine refuses one that a run of its own accepted.` + exits("0  recorded and written", "2  usage", "3  the ledger could not be extended"),
		Example: `  bodycam delegate request runs/A --to reviewer --scope "read /src, no network" -o request.receipt`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if t.To == "" || t.Scope == "" || out == "" {
				return usage("want --to, --scope and -o")
			}
			if _, err := os.Lstat(out); err == nil {
				return usage("%s is there already", out)
			}
			r, err := f.open(args[0])
			if err != nil {
				return err
			}
			if parent >= 0 {
				p := uint64(parent)
				t.Parent = &p
			}
			var asked *delegation.Receipt
			err = f.goOn(cmd.Context(), r, func(p *delegation.Party) error {
				asked, err = p.Request(cmd.Context(), t)
				return err
			})
			if err != nil {
				return err
			}
			if err := writeNewFile(out, []byte(asked.HeaderValue()+"\n"), 0o644); err != nil {
				return environment(err)
			}
			_, err = fmt.Fprintf(s.out, "%s: record %d of %s hands it over\n", out, asked.Seq, r.Dir)
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&t.To, "to", "", "to whom: a name, at most 1024 bytes")
	fl.StringVar(&t.Scope, "scope", "", "what the other side may do, at most 1024 bytes")
	fl.Int64Var(&parent, "parent", -1, "number of the record that led to it, such as an action's")
	fl.StringVarP(&out, "out", "o", "", "file to write; it must not exist")
	f.add(fl)
	return cmd
}

// readSide reads what a run or a bundle says of delegations. The run is nil for a bundle.
func (f *ringFlags) readSide(path string) (*delegation.Side, *store.Run, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, usage("%w", err)
	}
	if !info.IsDir() {
		b, err := regular.ReadNamed(path)
		if err != nil {
			return nil, nil, environment(err)
		}
		bundle, err := ledger.ParseBundle(b)
		if err != nil {
			return nil, nil, usage("%s is neither a run directory nor a bundle: %w", path, err)
		}
		if rep := bundle.Verify(ledger.Trust{Self: true}); rep.Verdict != ledger.Verified {
			return nil, nil, usage("%s doesn't verify: %s", path, rep.Verdict)
		}
		return delegation.FromBundle(bundle, path), nil, nil
	}
	r, err := f.open(path)
	if err != nil {
		return nil, nil, err
	}
	lr, err := r.Ledger()
	if err != nil {
		return nil, nil, environment(err)
	}
	defer lr.Close()
	side, err := delegation.FromLog(lr, filepath.Clean(path))
	if err != nil {
		return nil, nil, environment(err)
	}
	return side, r, nil
}

// discloseSide makes a bundle of a run's records of delegations.
func discloseSide(r *store.Run, side *delegation.Side) (*ledger.Bundle, error) {
	lr, err := r.Ledger()
	if err != nil {
		return nil, err
	}
	defer lr.Close()
	b, err := lr.Disclose(side.Disclose())
	if err != nil {
		return nil, err
	}
	b.Anchors, err = anchor.ForBundle(r.Dir, b.Checkpoint)
	return b, err
}

func delegateBundle(s *streams) *cobra.Command {
	var f ringFlags
	var out string
	cmd := &cobra.Command{
		Use:   "bundle RUN -o FILE",
		Short: "Write what the other side needs to prove a delegation",
		Long: `Write a bundle of a run's records of delegations, with their proofs up to the run's signed checkpoint: for "bodycam
delegate prove" and "bodycam verify" on another machine. It discloses their terms and receipts, and nothing else.` +
			exits("0  written", "2  usage, or the run took part in no delegation", "3  the ledger could not be read"),
		Example: "  bodycam delegate bundle runs/B -o b.bundle",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" {
				return usage("want -o FILE")
			}
			side, r, err := f.readSide(args[0])
			if err != nil {
				return err
			}
			if r == nil || side.Records() == 0 {
				return usage("%s has no record of a delegation", args[0])
			}
			b, err := discloseSide(r, side)
			if err != nil {
				return environment(err)
			}
			if err := writeNewFile(out, b.Append(nil), 0o600); err != nil {
				return environment(err)
			}
			_, err = fmt.Fprintf(s.out, "%s: %s\n", out, count(uint64(len(b.Items)), "record"))
			return err
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "file to write; it must not exist")
	f.add(cmd.Flags())
	return cmd
}

func delegateProve(s *streams) *cobra.Command {
	var f ringFlags
	cmd := &cobra.Command{
		Use:   "prove RUN RUN|BUNDLE…",
		Short: "Let each ledger embed proof that the other holds its part",
		Long: `Go on with the ledgers of runs that have ended: each is given what it lacks of the others' answers, and a bundle of the
others' records of delegations with their proofs up to a signed checkpoint. A bundle ("bodycam delegate bundle") stands for a
run of another machine, and isn't changed. To do it again adds nothing. Where two logs accepted one request, nothing is added.

What is added comes after the run's last anchor: anchor the run again.` +
			exits("0  done, or nothing was missing", "2  usage, a run isn't under this machine's keys, or two logs accepted one request", "3  a ledger could not be read or extended"),
		Example: "  bodycam delegate prove runs/A runs/B\n  bodycam delegate prove runs/A b.bundle",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := prover{f: &f, paths: args}
			if err := p.answers(cmd.Context()); err != nil {
				return err
			}
			return p.proofs(cmd.Context(), s)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// prover exchanges between the ledgers of runs what each lacks of the others.
type prover struct {
	f     *ringFlags
	paths []string
	sides []*delegation.Side
	runs  []*store.Run // nil where it is a bundle
	acks  map[int]int
}

func (p *prover) read() (err error) {
	p.sides, p.runs = make([]*delegation.Side, len(p.paths)), make([]*store.Run, len(p.paths))
	for i, path := range p.paths {
		if p.sides[i], p.runs[i], err = p.f.readSide(path); err != nil {
			return err
		}
	}
	return nil
}

// answers embeds acceptances that never came back.
func (p *prover) answers(ctx context.Context) error {
	p.acks = map[int]int{}
	if err := p.read(); err != nil {
		return err
	}
	// What a ledger embeds stays: a request that two logs accepted would keep the asker's incomplete for good.
	if err := delegation.Contested(p.sides...); err != nil {
		return withHint(usage("nothing was embedded: %w", err), "leave out the run that took the receipt second; \"bodycam verify\" with all of them says what there is")
	}
	for _, run := range p.runs {
		if run == nil {
			continue
		}
		if _, err := p.f.extend(run); err != nil {
			return withHint(err, "on the machine that recorded it, make a bundle (bodycam delegate bundle) and name that here")
		}
	}
	for i, run := range p.runs {
		for j, other := range p.sides {
			if run == nil || i == j || p.runs[j] == nil {
				continue
			}
			owed, err := p.sides[i].Owes(other, p.accepter(p.runs[j]))
			if err != nil {
				return err
			}
			if len(owed.Acks) == 0 {
				continue
			}
			err = p.f.goOn(ctx, run, func(party *delegation.Party) error {
				var errs []error
				for _, a := range owed.Acks {
					errs = append(errs, party.Acknowledge(ctx, a.Request, a.Accept))
				}
				return errors.Join(errs...)
			})
			if err != nil {
				return err
			}
			p.acks[i] += len(owed.Acks)
		}
	}
	return nil
}

// accepter signs for what a run's ledger holds.
func (p *prover) accepter(r *store.Run) func(*delegation.Receipt, uint64) (*delegation.Receipt, error) {
	return func(request *delegation.Receipt, seq uint64) (*delegation.Receipt, error) {
		sets, err := p.f.signers()
		if err != nil {
			return nil, err
		}
		signers, err := signersOf(r, sets)
		if err != nil {
			return nil, err
		}
		lr, err := r.Ledger()
		if err != nil {
			return nil, environment(err)
		}
		defer lr.Close()
		out, err := delegation.SignAccept(lr, signers, request, seq)
		if err != nil {
			return nil, environment(err)
		}
		return out, nil
	}
}

// proofs embeds bundles of the others. All are made before any ledger grows.
func (p *prover) proofs(ctx context.Context, s *streams) error {
	if err := p.read(); err != nil {
		return err
	}
	bundles := make([]*ledger.Bundle, len(p.paths))
	for i, run := range p.runs {
		var err error
		if run == nil {
			var b []byte
			if b, err = regular.ReadNamed(p.paths[i]); err == nil {
				bundles[i], err = ledger.ParseBundle(b)
			}
		} else if p.sides[i].Records() > 0 {
			bundles[i], err = discloseSide(run, p.sides[i])
		}
		if err != nil {
			return environment(err)
		}
	}
	for i, run := range p.runs {
		if run == nil {
			continue
		}
		var proved []string
		for j, other := range p.sides {
			if i == j || bundles[j] == nil {
				continue
			}
			owed, err := p.sides[i].Owes(other, nil)
			if err != nil {
				return environment(err)
			}
			if !owed.Proof {
				continue
			}
			err = p.f.goOn(ctx, run, func(party *delegation.Party) error { return party.Prove(ctx, bundles[j]) })
			if err != nil {
				return err
			}
			proved = append(proved, p.paths[j])
		}
		say := "nothing was missing"
		if len(proved) > 0 || p.acks[i] > 0 {
			say = fmt.Sprintf("%d answers and proof of %d others embedded", p.acks[i], len(proved))
		}
		if _, err := fmt.Fprintf(s.out, "%s: %s\n", p.paths[i], say); err != nil {
			return environment(err)
		}
	}
	return nil
}
