package judge

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
)

// Name is the embedded judge's, with the digest of what was fitted.
func (l *Local) Name() string {
	return fmt.Sprintf("local %x", l.digest[:6])
}

// JudgeScope is [Local.Scope] of the declaration's card, which is kept.
func (l *Local) JudgeScope(ctx context.Context, d Declaration, text string) (ScopeVerdict, error) {
	if err := ctx.Err(); err != nil {
		return ScopeVerdict{}, err
	}
	c, err := l.cards.get(l, d)
	if err != nil {
		return ScopeVerdict{}, err
	}
	return l.Scope(c, text), nil
}

// cards keeps the cards of the last declarations.
type cards struct {
	mu   sync.Mutex
	keep map[[32]byte]*Card
}

const keptCards = 64

func (k *cards) get(l *Local, d Declaration) (*Card, error) {
	b, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("digest the declaration: %w", err)
	}
	key := sha256.Sum256(b)
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.keep[key]; c != nil {
		return c, nil
	}
	if len(k.keep) >= keptCards || k.keep == nil {
		k.keep = map[[32]byte]*Card{}
	}
	c := l.Card(d)
	k.keep[key] = c
	return c, nil
}
