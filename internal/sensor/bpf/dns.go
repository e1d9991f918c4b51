package bpf

import (
	"net/netip"
	"strings"

	"github.com/bodycam-dev/bodycam"
	"golang.org/x/net/dns/dnsmessage"
)

// message is what the sensor takes from a DNS packet.
type message struct {
	id       uint16
	response bool
	rcode    dnsmessage.RCode
	question dnsmessage.Question
	answers  []netip.Addr
}

// parseDNS reads one packet. Only the first question counts: servers answer no more.
func parseDNS(b []byte) (m message, ok bool) {
	var p dnsmessage.Parser
	h, err := p.Start(b)
	if err != nil {
		return m, false
	}
	m.id, m.response, m.rcode = h.ID, h.Response, h.RCode
	if m.question, err = p.Question(); err != nil {
		return m, false
	}
	if !m.response || p.SkipAllQuestions() != nil {
		return m, true
	}
	for range 256 {
		a, err := p.AnswerHeader()
		if err != nil {
			break
		}
		switch a.Type {
		case dnsmessage.TypeA:
			r, err := p.AResource()
			if err != nil {
				return m, true
			}
			m.answers = append(m.answers, netip.AddrFrom4(r.A))
		case dnsmessage.TypeAAAA:
			r, err := p.AAAAResource()
			if err != nil {
				return m, true
			}
			m.answers = append(m.answers, netip.AddrFrom16(r.AAAA))
		default:
			if p.SkipAnswer() != nil {
				return m, true
			}
		}
	}
	return m, true
}

// packet reports a question when it is asked, and an answer when it comes. Packets of that port that are neither are
// not names; that they went is told by the send and the flow.
func (d *decoder) packet(r record, n *sensorNet, payload []byte) error {
	if n.Proto == 6 && len(payload) > 2 && int(payload[0])<<8|int(payload[1]) == len(payload)-2 {
		payload = payload[2:] // over TCP a message follows its length
	}
	m, ok := parseDNS(payload)
	out := sensorNetop(n.Op) == sensorNetopNET_OUT
	if !ok || m.response == out {
		return nil
	}
	d.count[sensorSourceSRC_DNS].Seen++ // the kernel side can't tell what a packet says
	e := d.begin(r, bodycam.TypeDNS)
	e.Proto, e.Cookie, e.HostSource = protoOf(n), n.Cookie, bodycam.HostDNS
	e.Host = strings.TrimSuffix(m.question.Name.String(), ".")
	e.Local, e.Remote = addrPort(n.Family, &n.Laddr, n.Lport), addrPort(n.Family, &n.Raddr, n.Rport)
	e.Detail = "question " + strings.TrimPrefix(m.question.Type.String(), "Type")
	if m.response {
		e.Detail = "answer " + strings.TrimPrefix(m.question.Type.String(), "Type")
		e.Answers = m.answers
		if m.rcode != dnsmessage.RCodeSuccess {
			e.Detail += " " + strings.TrimPrefix(m.rcode.String(), "RCode")
		}
	}
	return d.deliver(uint8(sensorSourceSRC_DNS))
}
