package export

import (
	"io"
	"maps"
	"net/url"
	"slices"

	"github.com/bodycam-dev/bodycam"
)

// The in-toto statement with a runtime trace, https://in-toto.io/attestation/runtime-trace/v0.2. It is unsigned: sign
// it in an envelope, or hold it against the ledger that its first subject names.
const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://in-toto.io/attestation/runtime-trace/v0.2"
	monitorType   = "https://github.com/bodycam-dev/bodycam"
)

// Statement is an in-toto statement.
type Statement struct {
	Type          string     `json:"_type"`
	Subject       []Resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     Trace      `json:"predicate"`
}

// Resource is a resource descriptor.
type Resource struct {
	Name        string            `json:"name,omitempty"`
	URI         string            `json:"uri,omitempty"`
	Digest      map[string]string `json:"digest,omitempty"`
	Annotations map[string]any    `json:"annotations,omitempty"`
}

// Trace is the predicate.
type Trace struct {
	Monitor          Monitor          `json:"monitor"`
	MonitoredProcess MonitoredProcess `json:"monitoredProcess"`
	MonitorLog       MonitorLog       `json:"monitorLog"`
	Metadata         Metadata         `json:"metadata"`
}

// Monitor says who watched, and how well.
type Monitor struct {
	Type         string         `json:"type"`
	ConfigSource *Resource      `json:"configSource,omitempty"`
	TracePolicy  map[string]any `json:"tracePolicy,omitempty"`
}

// MonitoredProcess says what was watched.
type MonitoredProcess struct {
	HostID string `json:"hostID"`
	Type   string `json:"type"`
	Event  string `json:"event"`
}

// MonitorLog is what was seen.
type MonitorLog struct {
	Process    []Process  `json:"process"`
	Network    []Network  `json:"network"`
	FileAccess []Resource `json:"fileAccess"`
}

// Process is a program that was started.
type Process struct {
	EventType string   `json:"eventType"` // exec, exit
	Binary    string   `json:"processBinary"`
	Arguments []string `json:"arguments,omitempty"`
	PID       int32    `json:"pid"`
	Event     uint64   `json:"event"` // its number in the run
	Failed    string   `json:"error,omitempty"`
	Status    *int32   `json:"status,omitempty"`
}

// Network is a peer that was contacted.
type Network struct {
	IP       string `json:"ip,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	Port     uint16 `json:"port,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	Invoking struct {
		PID  int32  `json:"pid"`
		Comm string `json:"comm"`
	} `json:"invokingProcess"`
	Event uint64 `json:"event"`
}

// Metadata dates the trace.
type Metadata struct {
	Started  string `json:"buildStartedOn,omitempty"`
	Finished string `json:"buildFinishedOn,omitempty"`
}

// InToto writes the statement.
func InToto(w io.Writer, s *Source) error {
	name, version := s.agent()
	st := Statement{Type: statementType, PredicateType: predicateType, Subject: []Resource{}}
	if s.Head != "" {
		st.Subject = append(st.Subject, Resource{Name: "ledger:" + s.logID(), Digest: map[string]string{"sha256": s.Head}, Annotations: map[string]any{"epochs": s.Size}})
	}
	for _, a := range s.Info.Artifacts {
		st.Subject = append(st.Subject, Resource{Name: a.Path, Digest: map[string]string{"sha256": a.SHA256}})
	}
	p := &st.Predicate
	p.Monitor = Monitor{Type: monitorType, TracePolicy: map[string]any{
		"version": s.Info.Tool.Version, "complete": s.Info.Complete.Complete, "incompleteBecause": orEmpty(s.Info.Complete.Reasons)}}
	if s.Info.Tool.SHA256 != "" {
		p.Monitor.ConfigSource = &Resource{Name: "recorder", Digest: map[string]string{"sha256": s.Info.Tool.SHA256}}
	}
	p.MonitoredProcess = MonitoredProcess{HostID: "urn:bodycam:boot:" + s.Info.Machine.BootID, Type: "urn:bodycam:harness:" + url.PathEscape(name+"@"+version),
		Event: "urn:bodycam:run:" + url.PathEscape(s.Info.ID)}
	p.Metadata = Metadata{stamp(s.Info.Started), stamp(s.Info.Ended)}
	if err := p.MonitorLog.fill(s); err != nil {
		return err
	}
	return writeJSON(w, &st)
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// fileUse sums a file's uses up.
type fileUse struct {
	read, written, failed uint64
}

func (l *MonitorLog) fill(s *Source) error {
	*l = MonitorLog{Process: []Process{}, Network: []Network{}, FileAccess: []Resource{}}
	files := map[string]*fileUse{}
	err := s.events(func(e *bodycam.Event) {
		switch e.Type {
		case bodycam.TypeExec:
			l.Process = append(l.Process, Process{EventType: "exec", Binary: bodycam.Escape(e.Exe), Arguments: bodycam.EscapeAll(e.Argv), PID: e.Proc.PID, Event: e.Seq, Failed: bodycam.ErrnoName(e.Errno)})
		case bodycam.TypeExit:
			status := e.Status
			l.Process = append(l.Process, Process{EventType: "exit", Binary: bodycam.Escape(e.Exe), PID: e.Proc.PID, Event: e.Seq, Status: &status})
		case bodycam.TypeConnect, bodycam.TypeSend, bodycam.TypeAccept, bodycam.TypeFlow:
			l.network(e)
		case bodycam.TypeOpen:
			use(files, e)
		}
	})
	for _, path := range slices.Sorted(maps.Keys(files)) {
		u := files[path]
		l.FileAccess = append(l.FileAccess, Resource{Name: bodycam.Escape(path), URI: (&url.URL{Scheme: "file", Path: path}).String(),
			Annotations: map[string]any{"read": u.read, "written": u.written, "failed": u.failed}})
	}
	return err
}

func (l *MonitorLog) network(e *bodycam.Event) {
	if !e.Remote.IsValid() && e.Host == "" {
		return // a unix socket
	}
	n := Network{Hostname: bodycam.Escape(e.Host), Port: e.Remote.Port(), Protocol: e.Proto.String(), Event: e.Seq}
	if e.Remote.IsValid() {
		n.IP = e.Remote.Addr().Unmap().String()
	}
	n.Invoking.PID, n.Invoking.Comm = e.Proc.PID, bodycam.Escape(e.Exe)
	l.Network = append(l.Network, n)
}

func use(files map[string]*fileUse, e *bodycam.Event) {
	if e.Path == "" {
		return
	}
	u := files[e.Path]
	if u == nil {
		u = &fileUse{}
		files[e.Path] = u
	}
	switch {
	case e.Failed():
		u.failed += e.N()
	case e.Access.Writes():
		u.written += e.N()
	default:
		u.read += e.N()
	}
}
