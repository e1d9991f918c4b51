// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// One slot per aggregator: the newest super-root, changed by compare-and-swap. A super-root is the head of an RFC 9162
/// tree over (log, head) of many recorders, made outside; each of them gets its inclusion proof.
contract Super {
    mapping(address => bytes32) public head;

    event Batch(address indexed aggregator, bytes32 root, uint64 members);

    error Fork(bytes32 have);

    function anchor(bytes32 prev, bytes32 root, uint64 members) external {
        bytes32 have = head[msg.sender];
        if (have != prev) revert Fork(have);
        head[msg.sender] = root;
        emit Batch(msg.sender, root, members);
    }
}
