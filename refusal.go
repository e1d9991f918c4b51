package bodycam

import "strings"

const refusal = "refused by rule "

// Refusal is the Detail of an event whose call the recorder refused because of a rule of mode deny.
func Refusal(rule string) string { return refusal + rule }

// RefusedBy is the rule because of which the recorder refused the call, "" where it didn't. Of an open or execution the
// event is that of a call that failed; the kernel refused it at the recorder's word.
func (e *Event) RefusedBy() string {
	if e.Errno == 0 || e.Type != TypeOpen && e.Type != TypeExec {
		return ""
	}
	rule, _ := strings.CutPrefix(e.Detail, refusal)
	if rule == e.Detail {
		return ""
	}
	return rule
}
