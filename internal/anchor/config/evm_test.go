package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const evmFile = `anchors:
  - kind: evm
    nodes: ["http://127.0.0.1:1", "http://127.0.0.1:2"]
    chain: 10
    contract: "0x00000000000000000000000000000000000000aa"
    design: head
    key: account.hex
    max_fee: 0.5
    deposit:
      nodes: ["http://127.0.0.1:3"]
      chain: 1
      portal: "0x00000000000000000000000000000000000000bb"
      after: 1h
      max_fee: 30
`

// TestEVM: an anchor of kind evm with another way in is opened, and what is wrong with it is named.
func TestEVM(t *testing.T) {
	for name, c := range map[string]struct{ old, with, want string }{
		"good":          {},
		"no portal":     {`portal: "0x00000000000000000000000000000000000000bb"`, `portal: "here"`, "address of its portal"},
		"no layer 1":    {"chain: 1\n", "chain: 0\n", "layer 1's chain"},
		"no node there": {`["http://127.0.0.1:3"]`, "[]", "layer 1: 0 of 0 nodes"},
		"no time":       {"after: 1h", "after: soon", "no time such as 1h"},
		"unknown":       {"after: 1h", "afterwards: 1h", "afterwards"},
		"contract":      {"00000000aa", "00000000", "no address"},
		"no key":        {"account.hex", "other.hex", "account's key"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"anchors.yaml": strings.Replace(evmFile, c.old, c.with, 1), "account.hex": strings.Repeat("01", 32) + "\n"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			list, err := Read(filepath.Join(dir, "anchors.yaml"))
			if err == nil {
				_, err = list[0].Open(t.Context())
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q in it", err, c.want)
			}
		})
	}
}
