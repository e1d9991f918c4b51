package evm_test

import (
	"testing"

	"github.com/bodycam-dev/bodycam/internal/anchor/evm/evmsuite"
	"github.com/bodycam-dev/bodycam/internal/anchor/evm/evmtest"
)

// TestSuite runs on anvil; module gethtest runs the same on go-ethereum's node.
func TestSuite(t *testing.T) {
	evmsuite.Run(t, func(t *testing.T) *evmtest.Node { return evmtest.Anvil(t) })
}

func TestSteadyGas(t *testing.T) { evmsuite.Gas(t, evmtest.Anvil(t)) }
