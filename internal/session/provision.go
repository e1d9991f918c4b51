package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/harness/transcript"
	"github.com/bodycam-dev/bodycam/internal/kind"
	"github.com/bodycam-dev/bodycam/internal/sandbox"
	"github.com/bodycam-dev/bodycam/internal/sensor/names"
)

// provision finds the agent program, makes the sandbox and the proxy that its network leads to.
func (s *run) provision(ctx context.Context) error {
	if err := s.o.Prepare(ctx); err != nil {
		return err
	}
	s.inv = s.o.inv
	if s.inv != nil {
		s.update(func(r *bodycam.Run) {
			r.Agent.Version, r.Agent.Digest = s.o.found.Version, s.o.found.SHA256
			for _, b := range s.inv.Binds {
				r.Agent.Programs = append(r.Agent.Programs, b.Box)
			}
			r.Agent.State = s.inv.StatePaths
			for _, u := range s.inv.Unserved {
				r.Unhonoured = append(r.Unhonoured, bodycam.Unhonoured{Where: "agent", Instruction: "mcp_servers: " + u.Server, Why: u.Why})
			}
		})
	}
	if err := s.beginWork(ctx); err != nil {
		return err
	}
	proxy, err := s.newProxy()
	if err != nil {
		return err
	}
	c, err := s.boxConfig(proxy)
	if err != nil {
		return err
	}
	if s.o.Guard != nil {
		if err := s.newGuard(); err != nil {
			return err
		}
		c.Keep = append(c.Keep, s.guards.g.File())
	}
	began := time.Now()
	if s.box, err = sandbox.Create(ctx, c); err != nil {
		return err
	}
	took := time.Since(began)
	s.undo = append(s.undo, s.box.Close)
	digest, err := s.box.BaseDigest(ctx)
	if err != nil {
		return fmt.Errorf("taking the digest of the base: %w", err)
	}
	s.update(func(r *bodycam.Run) {
		r.Environment.BaseDigest, r.Environment.Weaker = digest, s.box.Weaker()
		r.Environment.StartedIn = float64(took.Microseconds()) / 1000
	})
	if proxy == nil {
		return nil
	}
	return s.serveProxy(ctx, proxy)
}

// user is the account that the sandbox has for the agent, by what the plan calls it: root (inside only), a name, or a
// number. A name must be one that the base knows, unless the task says it: its image may have had it.
func (s *run) user(name string) sandbox.User {
	name, _, _ = strings.Cut(name, ":")
	switch name {
	case "", "root", "0":
		return sandbox.User{Name: "root", Home: "/root"}
	}
	if uid, err := strconv.ParseUint(name, 10, 16); err == nil {
		return sandbox.User{Name: "user" + name, UID: uint32(uid), GID: uint32(uid), Home: "/home/user" + name}
	}
	u := sandbox.User{Name: name, Home: path.Join("/home", name)}
	if s.plan.Agent.UserOfTask {
		u.UID, u.GID = 1000, 1000
	}
	return u
}

// boxUser is the account that the sandbox makes before setup. One that a setup step makes itself (useradd in a
// Dockerfile) must not be there yet.
func (s *run) boxUser() sandbox.User {
	u := s.user(s.plan.Agent.User)
	for _, p := range s.plan.Setup {
		text := os.Expand(strings.Join(p.Argv, " "), func(name string) string {
			for _, e := range p.Env {
				if e.Name == name {
					return e.Value
				}
			}
			return ""
		})
		if (strings.Contains(text, "useradd") || strings.Contains(text, "adduser")) && strings.Contains(text, u.Name) {
			return sandbox.User{Name: "root", Home: "/root"}
		}
	}
	return u
}

// newProxy makes the recording proxy where the plan's network has anything to record; nil where the sandbox has
// nothing but its own loopback.
func (s *run) newProxy() (*names.Proxy, error) {
	n := s.plan.Network
	s.exchanges = &exchanges{w: s.w}
	o := names.Options{
		Content: s.exchanges.content, Refuse: s.refuse,
		Allow: n.Allow, Intercept: n.TLS == "intercept", Emit: s.proxySink, Dropped: s.dropped, OriginalDst: sandbox.OriginalDst, Hosts: boxHosts(),
	}
	switch n.Mode {
	case "record":
		o.Mode = names.Record
	case "allow":
		o.Mode = names.Allow
	case "sink":
		o.Mode = names.Sink
	case "none", "":
		o.Mode, o.Allow = names.Allow, nil
	default:
		return nil, fmt.Errorf("network %q: want none, record, allow or sink", n.Mode)
	}
	for _, f := range n.Forward {
		o.Forwards = append(o.Forwards, names.Forward{Host: f.Host, Port: uint16(f.Port), Target: f.To})
	}
	s.delegates(&o)
	s.secrets(&o)
	if s.o.Model.URL != "" {
		// The path of the URL stays part of what the client asks for; the target is scheme and host alone.
		u, err := url.Parse(s.o.Model.URL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("model endpoint %q is no http or https URL", s.o.Model.URL)
		}
		fw := names.Forward{Host: ModelHost, Port: 80, Target: u.Scheme + "://" + u.Host}
		if key := s.o.Model.Key; key != nil {
			fw.Header = func() (http.Header, error) {
				k := key()
				return http.Header{"Authorization": {"Bearer " + k}, "X-Api-Key": {k}, "X-Goog-Api-Key": {k}}, nil
			}
		}
		o.Forwards = append(o.Forwards, fw)
	}
	if (n.Mode == "none" || n.Mode == "") && len(o.Forwards) == 0 {
		return nil, nil
	}
	return names.New(o)
}

// boxHosts are the entries of the sandbox's hosts file.
func boxHosts() map[string][]netip.Addr {
	return map[string][]netip.Addr{"localhost": {netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}}
}

// makeReady has the caller make what judges the agent, while the sandbox is set up: the agent's time is not for that.
func (s *run) makeReady() {
	made := make(chan error, 1)
	info := s.w.Info()
	go func() {
		var err error
		if s.o.Ready != nil {
			err = s.o.Ready(&info)
		}
		made <- err
	}()
	s.judgeReady = sync.OnceValue(func() error { return <-made })
	s.undo = append(s.undo, func() error { _ = s.judgeReady(); return nil }) // its error is the agent's phase's
}

// refuse is asked by the proxy. What is set up before the agent is not its doing.
func (s *run) refuse(e *bodycam.Event) string {
	if s.o.Refuse == nil || !s.refusing.Load() {
		return ""
	}
	return s.o.Refuse(e)
}

// proxySink takes what the proxy saw. Before the sensors are in place nothing is observed.
func (s *run) proxySink(e *bodycam.Event) error {
	if j := s.joiner.Load(); j != nil {
		return j.Names(e)
	}
	return nil
}

// dropped counts the packets that the sandbox's packet filter refused.
func (s *run) dropped() uint64 {
	if s.box == nil {
		return 0
	}
	n, err := s.box.DroppedPackets(context.Background())
	if err != nil {
		return 0 // the box has ended; its last count was taken when the proxy gave its health
	}
	return n
}

func (s *run) serveProxy(ctx context.Context, p *names.Proxy) error {
	tcp, dns, dnsTCP, err := s.box.NetListeners()
	if err != nil {
		return fmt.Errorf("taking over the sandbox's network: %w", err)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve(context.WithoutCancel(ctx), tcp, dns, dnsTCP) }()
	s.proxy = p
	s.update(func(r *bodycam.Run) { r.Environment.Resolver = sandbox.Resolver().String() })
	s.stopProxy = sync.OnceValue(func() error {
		err := p.Close()
		if serr := <-served; serr != nil && !errors.Is(serr, net.ErrClosed) {
			err = errors.Join(err, serr)
		}
		return err
	})
	s.undo = append(s.undo, s.stopProxy)
	return nil
}

func (s *run) boxConfig(p *names.Proxy) (sandbox.Config, error) {
	plan := s.plan
	if s.o.State == "" {
		dir, err := os.MkdirTemp("", "bodycam-")
		if err != nil {
			return sandbox.Config{}, fmt.Errorf("making a folder for the sandbox: %w", err)
		}
		s.undo = append(s.undo, func() error { return os.RemoveAll(dir) })
		s.o.State = dir
	}
	c := sandbox.Config{
		ID: s.o.ID, StateDir: s.o.State, Hostname: plan.Hostname, Seccomp: sandbox.Seccomp(plan.Seccomp),
		Limits: sandbox.Limits{MemoryBytes: uint64(plan.Limits.Memory), CPUs: plan.Limits.CPUs, Pids: uint64(plan.Limits.PIDs),
			DiskBytes: uint64(plan.Limits.Disk), Inodes: uint64(plan.Limits.Inodes), OutputBytes: uint64(plan.Limits.Output)},
		Agent: s.boxUser(), Hosts: map[string]netip.Addr{},
	}
	switch st, err := os.Stat(plan.Base); {
	case plan.Base == "host" || plan.Base == "":
		c.Base = sandbox.Base{Kind: sandbox.BaseHost, Writable: true}
	case err != nil:
		return c, fmt.Errorf("base of the environment: %w", err)
	case st.IsDir():
		c.Base = sandbox.Base{Kind: sandbox.BaseDir, Path: plan.Base}
	default:
		c.Base = sandbox.Base{Kind: sandbox.BaseTar, Path: plan.Base}
	}
	for _, b := range plan.Binds {
		c.Binds = append(c.Binds, sandbox.Bind{Host: string(b.From), Box: b.To, ReadOnly: !b.Writable})
	}
	if s.inv != nil {
		for _, b := range s.inv.Binds {
			c.Binds = append(c.Binds, sandbox.Bind{Host: b.Host, Box: b.Box, ReadOnly: true})
		}
	}
	if p != nil {
		c.Network.Mode = sandbox.NetProxied
		c.ExtraCA = p.CA()
	}
	return c, nil
}

func (s *run) transcriptOptions() transcript.Options {
	return transcript.Options{KeepReasoning: s.plan.Transcripts.KeepReasoning, Source: "stdout"}
}

func planJSON(p *kind.Plan) json.RawMessage {
	b, err := json.Marshal(p)
	if err != nil {
		return nil // a plan is made of plain values; Resolve has marshalled it for its digest before
	}
	return b
}
