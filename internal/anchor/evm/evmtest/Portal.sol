// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// A stand-in, for tests, for the OptimismPortal of an OP Stack chain (specs.optimism.io/protocol/deposits.html): the same
/// function, event, packing and bounds. What it leaves out is the market for layer 2's gas, which burns gas of layer 1, and
/// all that belongs to withdrawals.
contract Portal {
    event TransactionDeposited(address indexed from, address indexed to, uint256 indexed version, bytes opaqueData);

    error NoContractCreation();
    error GasLimitTooLow();
    error DataTooLong();

    function depositTransaction(address to, uint256 value, uint64 gasLimit, bool isCreation, bytes calldata data) external payable {
        if (isCreation && to != address(0)) revert NoContractCreation();
        if (gasLimit < 21_000 + 40 * data.length) revert GasLimitTooLow();
        if (data.length > 120_000) revert DataTooLong();
        address from = msg.sender;
        if (from != tx.origin) {
            unchecked {
                from = address(uint160(from) + uint160(0x1111000000000000000000000000000000001111));
            }
        }
        emit TransactionDeposited(from, to, 0, abi.encodePacked(msg.value, value, gasLimit, isCreation, data));
    }
}
