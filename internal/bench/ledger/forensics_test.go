package ledgerbench

import (
	"context"
	"testing"
)

// Structured questions find exactly what is true; what text search finds is told.
func TestForensics(t *testing.T) {
	res, err := Forensics(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + res.Text())
	worse := 0
	for _, a := range res.Asked {
		if a.Ledger.Precision != 1 || a.Ledger.Recall != 1 || a.Ledger.Answers != a.Truth {
			t.Errorf("%s: %+v, want %d answers", a.Question, a.Ledger, a.Truth)
		}
		if a.Text.Precision < 1 || a.Text.Recall < 1 {
			worse++
		}
	}
	if len(res.Asked) != 8 || worse < 6 {
		t.Errorf("%d questions, of which text search fails at %d", len(res.Asked), worse)
	}
	for name, ok := range res.Chains {
		if !ok {
			t.Errorf("%s: the causal chain isn't complete", name)
		}
	}
	for _, s := range res.Dispute {
		settled := s.Honest == "verifies" && s.Altered == "is found out"
		if want := s.Config == "full, heads outside"; settled != want {
			t.Errorf("%+v", s)
		}
	}
}
