package bodycam

import (
	"encoding/hex"
	"net/netip"
	"strconv"
	"time"
	"unicode/utf8"
)

// AppendJSON appends the event's JSON form, one object without a line break: the schema that docs/EVENTS.md
// describes. The members that every event has come first, also where they are empty, so that a consumer need not
// test for them; the others are there only where they say something.
func (e *Event) AppendJSON(b []byte) []byte {
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, e.Seq, 10)
	b = append(b, `,"time":"`...)
	b = time.Unix(0, e.Time).UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","boot":`...)
	b = strconv.AppendUint(b, e.Boot, 10)
	b = appendStr(b, "type", e.Type.String())
	b = appendStr(b, "syscall", e.Syscall())
	b = appendStr(b, "abi", e.ABI.String())
	b = appendNum(b, "flags", e.Flags)
	b = appendInt(b, "pid", int64(e.Proc.PID))
	b = appendNum(b, "pid_start", e.Proc.Start)
	b = appendInt(b, "tid", int64(e.TID))
	b = appendInt(b, "ppid", int64(e.Parent.PID))
	b = appendNum(b, "uid", uint64(e.UID))
	b = appendStr(b, "exe", e.Exe)
	b = append(b, `,"argv":`...)
	b = appendStrings(b, e.Argv)
	b = appendStr(b, "cwd", e.CWD)
	b = appendStr(b, "path", e.Path)
	b = appendStr(b, "path_given", e.PathGiven)
	b = appendStr(b, "dev_ino", e.DevIno())
	b = appendStr(b, "access", e.Access.String())
	b = appendNum(b, "bytes", e.amount())
	b = appendStr(b, "proto", e.Proto.String())
	b = appendStr(b, "laddr", addrPortString(e.Local))
	b = appendStr(b, "addr", e.Addr())
	b = appendNum(b, "port", uint64(e.Remote.Port()))
	b = appendStr(b, "host", e.Host)
	b = appendStr(b, "host_source", e.HostSource.String())
	b = appendInt(b, "errno", int64(e.Errno))
	b = appendNum(b, "count", e.N())
	b = appendStr(b, "window", e.Window.String())
	b = appendStr(b, "sensor", e.Sensor)
	b = e.appendRest(b)
	return append(b, '}')
}

// appendRest appends the members that only some events have.
func (e *Event) appendRest(b []byte) []byte {
	str := func(key, v string) {
		if v != "" {
			b = appendStr(b, key, v)
		}
	}
	num := func(key string, v uint64) {
		if v != 0 {
			b = appendNum(b, key, v)
		}
	}
	str("error", ErrnoName(e.Errno))
	num("ppid_start", e.Parent.Start)
	num("gid", uint64(e.GID))
	num("session", uint64(e.SID))
	str("script", e.Script)
	num("argv_len", e.ArgvLen)
	if e.ArgvHash != ([32]byte{}) {
		str("argv_sha256", hex.EncodeToString(e.ArgvHash[:]))
	}
	str("path2", e.Path2)
	str("path2_given", e.Path2Given)
	num("bytes_read", e.BytesRead)
	num("bytes_written", e.BytesWritten)
	if e.Mapped {
		b = append(b, `,"mapped":true`...)
	}
	num("last_boot", e.LastBoot)
	str("unix", e.UnixAddr)
	if len(e.Answers) > 0 {
		b = append(b, `,"answers":[`...)
		for i, a := range e.Answers {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, '"')
			b = a.AppendTo(b)
			b = append(b, '"')
		}
		b = append(b, ']')
	}
	num("cookie", e.Cookie)
	if e.Child.PID != 0 {
		b = appendInt(b, "child_pid", int64(e.Child.PID))
		b = appendNum(b, "child_start", e.Child.Start)
	}
	if e.Signal != 0 {
		b = appendInt(b, "signal", int64(e.Signal))
	}
	if e.Type == TypeExit {
		b = appendInt(b, "status", int64(e.Status))
		b = appendInt(b, "exit_code", int64(e.Status>>8&0xff))
	}
	if e.Marks != 0 {
		b = append(b, `,"marks":`...)
		b = appendStrings(b, e.Marks.Names())
	}
	str("detail", e.Detail)
	return b
}

// MarshalJSON implements json.Marshaler.
func (e *Event) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil), nil }

// DevIno is the object's device and inode as "major:minor:inode", or "" where it is unknown.
func (e *Event) DevIno() string {
	if e.Ino == 0 && e.Dev == 0 {
		return ""
	}
	return strconv.FormatUint(e.Dev>>32, 10) + ":" + strconv.FormatUint(e.Dev&0xffffffff, 10) + ":" + strconv.FormatUint(e.Ino, 10)
}

// Addr is the other end's address: an IP address, or a unix socket's path or abstract "@name".
func (e *Event) Addr() string {
	if e.UnixAddr != "" {
		return e.UnixAddr
	}
	if !e.Remote.Addr().IsValid() {
		return ""
	}
	return e.Remote.Addr().String()
}

// amount is the one number for "bytes": for a transfer what went both ways, else what the call itself moved.
func (e *Event) amount() uint64 {
	if e.Bytes != 0 {
		return e.Bytes
	}
	return e.BytesRead + e.BytesWritten
}

func addrPortString(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func appendStr(b []byte, key, v string) []byte {
	b = append(append(append(b, ',', '"'), key...), '"', ':')
	return appendQuoted(b, v)
}

func appendNum(b []byte, key string, v uint64) []byte {
	b = append(append(append(b, ',', '"'), key...), '"', ':')
	return strconv.AppendUint(b, v, 10)
}

func appendInt(b []byte, key string, v int64) []byte {
	b = append(append(append(b, ',', '"'), key...), '"', ':')
	return strconv.AppendInt(b, v, 10)
}

func appendStrings(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(b, s)
	}
	return append(b, ']')
}

// appendQuoted writes raw bytes as a JSON string: Escape, then JSON's own escapes. The characters that end a
// line in JavaScript are escaped too, and so are the ones that HTML gives a meaning, since reports embed JSON.
func appendQuoted(b []byte, s string) []byte {
	s = Escape(s)
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= 0x20 && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&' && c != 0x7f {
				i++
				continue
			}
			b = append(b, s[start:i]...)
			switch c {
			case '"', '\\':
				b = append(b, '\\', c)
			case '\n':
				b = append(b, '\\', 'n')
			case '\t':
				b = append(b, '\\', 't')
			case '\r':
				b = append(b, '\\', 'r')
			default:
				b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == 0x2028 || r == 0x2029 {
			b = append(b, s[start:i]...)
			b = append(b, '\\', 'u', '2', '0', '2', hexDigits[r&15])
			start = i + n
		}
		i += n
	}
	return append(append(b, s[start:]...), '"')
}
