package query

import (
	"errors"
	"testing"
)

func TestRecordFields(t *testing.T) {
	for _, text := range []string{`record.sequence == 3`, `type == "x" && record.tpye == "event"`, `1 == record."kinds"`} {
		var se *SyntaxError
		if _, err := Parse(text); !errors.As(err, &se) || se.Hint == "" {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, f := range recordFields {
		if _, err := Parse("record." + f + " == null"); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}
