package delegation_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/delegation"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
)

// Two programs that keep ledgers of their own hand work over; a third judges what they show.
func Example() {
	ctx := context.Background()
	top, err := os.MkdirTemp("", "delegation-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(top)
	open := func(name string, seed byte) (*ledger.Writer, *delegation.Party, string) {
		s, err := checkpoint.NewSigner(checkpoint.Ed25519, bytes.Repeat([]byte{seed}, 32))
		if err != nil {
			panic(err)
		}
		dir := filepath.Join(top, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			panic(err)
		}
		w, err := ledger.Create(posixstore.New(dir), ledger.Options{Name: name, Signers: []checkpoint.Signer{s}, Clear: true})
		if err != nil {
			panic(err)
		}
		return w, delegation.New(w, os.DirFS(dir), []checkpoint.Signer{s}), dir
	}
	planner, asks, plannerDir := open("planner", 1)
	coder, does, coderDir := open("coder", 2)

	asked, err := asks.Request(ctx, delegation.Terms{To: "coder", Scope: "fix the failing test, nothing else"})
	if err != nil {
		panic(err)
	}
	// asked.HeaderValue() goes along with the request; its answer comes back in the same way.
	answer, err := does.Accept(ctx, asked, 0, nil)
	if err != nil {
		panic(err)
	}
	if err := asks.Acknowledge(ctx, asked, answer); err != nil {
		panic(err)
	}
	for _, w := range []*ledger.Writer{planner, coder} {
		if err := w.Close(); err != nil {
			panic(err)
		}
	}

	var sides []*delegation.Side
	for _, dir := range []string{plannerDir, coderDir} {
		r, err := ledger.OpenReader(os.DirFS(dir))
		if err != nil {
			panic(err)
		}
		side, err := delegation.FromLog(r, filepath.Base(dir))
		if err != nil {
			panic(err)
		}
		sides = append(sides, side)
	}
	j := delegation.Judge(nil, sides...)
	fmt.Println(j.Status, j.Delegations[0].Scope)
	fmt.Println(delegation.Judge(nil, sides[0]).Status, "alone")
	// Output:
	// verified fix the failing test, nothing else
	// unverifiable alone
}
