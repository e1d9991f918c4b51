package evm

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
)

// Deploy creates a design's contract and waits until it is in a block. It returns the contract's address and the chain.
func Deploy(ctx context.Context, node, design string, key *ecdsa.PrivateKey) (contract common.Address, chain uint64, err error) {
	code, err := Bytecode(design)
	if err != nil {
		return contract, 0, err
	}
	e, err := ethclient.DialContext(ctx, node)
	if err != nil {
		return contract, 0, fmt.Errorf("node %s: %w", node, err)
	}
	defer e.Close()
	tx, id, err := creation(ctx, e, code, key)
	if err == nil {
		err = e.SendTransaction(ctx, tx)
	}
	if err != nil {
		return contract, 0, fmt.Errorf("deploying the contract: %w", err)
	}
	for {
		r, err := e.TransactionReceipt(ctx, tx.Hash())
		switch {
		case err == nil && r.Status == types.ReceiptStatusSuccessful:
			return r.ContractAddress, id.Uint64(), nil
		case err == nil:
			return contract, 0, fmt.Errorf("deploying the contract: transaction %s failed", tx.Hash().Hex())
		case !errors.Is(err, ethereum.NotFound):
			return contract, 0, fmt.Errorf("deploying the contract, transaction %s: %w", tx.Hash().Hex(), err)
		}
		select {
		case <-ctx.Done():
			return contract, 0, fmt.Errorf("transaction %s isn't in a block yet: %w", tx.Hash().Hex(), ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// creation is the signed transaction that creates a contract.
func creation(ctx context.Context, e *ethclient.Client, code []byte, key *ecdsa.PrivateKey) (*types.Transaction, *big.Int, error) {
	from := crypto.PubkeyToAddress(key.PublicKey)
	id, err := e.ChainID(ctx)
	if err != nil {
		return nil, nil, err
	}
	nonce, err := e.PendingNonceAt(ctx, from)
	if err != nil {
		return nil, nil, err
	}
	gas, err := e.EstimateGas(ctx, ethereum.CallMsg{From: from, Data: code})
	if err != nil {
		return nil, nil, err
	}
	tip, err := e.SuggestGasTipCap(ctx)
	if err != nil {
		return nil, nil, err
	}
	h, err := e.HeaderByNumber(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	if h.BaseFee == nil {
		return nil, nil, errors.New("the chain has no base fee (EIP-1559)")
	}
	tx, err := types.SignNewTx(key, types.LatestSignerForChainID(id), &types.DynamicFeeTx{
		ChainID: id, Nonce: nonce, GasTipCap: tip, GasFeeCap: new(big.Int).Add(new(big.Int).Mul(h.BaseFee, big.NewInt(2)), tip), Gas: gas, Data: code,
	})
	return tx, id, err
}
