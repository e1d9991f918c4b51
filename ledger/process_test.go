//go:build unix

package ledger_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"filippo.io/age"

	"github.com/bodycam-dev/bodycam/ledger"
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
	"github.com/bodycam-dev/bodycam/ledger/posixstore"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("LEDGER_TEST_WRITER"); dir != "" {
		writeUntilKilled(dir, os.Getenv("LEDGER_TEST_IDENTITY"))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeUntilKilled appends for ever and prints the sequence number of every record that was reported durable.
func writeUntilKilled(dir, identity string) {
	id, err := age.ParseX25519Identity(identity)
	if err != nil {
		panic(err)
	}
	signer, err := checkpoint.NewSigner(checkpoint.Ed25519, make([]byte, 32))
	if err != nil {
		panic(err)
	}
	opts := ledger.Options{Signers: []checkpoint.Signer{signer}, Recipients: []age.Recipient{id.Recipient()}, EpochRecords: 20, CheckpointEvery: 1}
	w, err := ledger.Open(posixstore.New(dir), opts)
	if err != nil {
		if w, err = ledger.Create(posixstore.New(dir), opts); err != nil {
			panic(err)
		}
	}
	for i := 0; ; i++ {
		e := ledger.Entry{Type: ledger.TypeUser, Kind: "k", Payload: payload(i)}
		if i%7 == 0 {
			e.Durability = ledger.DurableEvent
		}
		seq, err := w.Append(context.Background(), e)
		if err != nil {
			panic(err)
		}
		if i%7 == 0 {
			fmt.Println(seq)
		}
	}
}

// TestKill kills a writing process with SIGKILL, three times over one log, and checks after each that every record
// that was reported durable is there.
func TestKill(t *testing.T) {
	id := identity(t)
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var durable uint64
	for round := range 3 {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), "LEDGER_TEST_WRITER="+dir, "LEDGER_TEST_IDENTITY="+id.String())
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 40 && lines.Scan(); n++ {
			durable, err = strconv.ParseUint(lines.Text(), 10, 64)
			if err != nil {
				t.Fatalf("the writer printed %q", lines.Text())
			}
			if n == 5 {
				var locked *ledger.LockedError
				_, err := ledger.Open(posixstore.New(dir), ledger.Options{Signers: []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 0)}, Clear: true})
				if !errors.As(err, &locked) || !strings.Contains(err.Error(), strconv.Itoa(cmd.Process.Pid)) {
					t.Fatalf("a second writer wasn't refused with the holder's id %d: %v", cmd.Process.Pid, err)
				}
			}
		}
		cmd.Process.Signal(syscall.SIGKILL)
		for lines.Scan() { // what it still reported before it died
			if durable, err = strconv.ParseUint(lines.Text(), 10, 64); err != nil {
				t.Fatalf("the writer printed %q", lines.Text())
			}
		}
		cmd.Wait()
		r := verify(t, dir, ledger.VerifyOptions{Trust: ledger.Trust{Self: true}, Identities: []age.Identity{id}})
		if r.Verdict != ledger.Incomplete || r.Claims.Content.Status == ledger.StatusTampered {
			t.Fatalf("round %d: verdict %s, first bad %+v, %+v", round, r.Verdict, r.FirstBad, r.Claims)
		}
	}
	w, err := ledger.Open(posixstore.New(dir), ledger.Options{
		Signers: []checkpoint.Signer{seedSigner(t, checkpoint.Ed25519, 0)}, Recipients: []age.Recipient{id.Recipient()},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := verify(t, dir, ledger.VerifyOptions{Trust: ledger.Trust{Self: true}, Identities: []age.Identity{id}})
	if c := r.Claims; c.Integrity.Status != ledger.StatusVerified || c.Content.Status != ledger.StatusVerified || !r.Closed || r.Records <= durable {
		t.Fatalf("%d records after %d were durable; first bad %+v, %+v", r.Records, durable, r.FirstBad, c)
	}
}
