package cli

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/bodycam-dev/bodycam/internal/anchor/evm/evmtest"
)

// Each script in testdata/chain is what an operator and a verifier do with a chain: anvil, which makes a block a second.
func TestChainScripts(t *testing.T) {
	program := os.Getenv("ANVIL")
	if program == "" {
		var err error
		if program, err = exec.LookPath("anvil"); err != nil {
			t.Skip("no anvil: npm install -g @foundry-rs/anvil, or set ANVIL to the program")
		}
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/chain",
		Setup: func(e *testscript.Env) error {
			if err := ownHome(e); err != nil {
				return err
			}
			account := hex.EncodeToString(crypto.FromECDSA(evmtest.Key(t)))
			return os.WriteFile(filepath.Join(e.WorkDir, "account.hex"), []byte(account+"\n"), 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mkrun": mkrun, "status": status, "fill": fill,
			// chain VARIABLE: start a chain and put its URL into a variable.
			"chain": func(ts *testscript.TestScript, _ bool, args []string) {
				port := evmtest.Port(t)
				cmd := exec.Command(program, "--port", fmt.Sprint(port), "--hardfork", "osaka", "--slots-in-an-epoch", "1", "--block-time", "1", "--silent")
				ts.Check(cmd.Start())
				ts.Defer(func() { cmd.Process.Kill(); cmd.Wait() })
				url := fmt.Sprintf("http://127.0.0.1:%d", port)
				e, err := ethclient.Dial(url)
				ts.Check(err)
				defer e.Close()
				for i := 0; ; i++ {
					if _, err = e.BlockNumber(t.Context()); err == nil || i == 400 {
						break
					}
					time.Sleep(25 * time.Millisecond)
				}
				ts.Check(err)
				ts.Setenv(args[0], url)
			},
		},
	})
}
