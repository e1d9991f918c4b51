// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// One slot per (sender, log): the newest head, changed by compare-and-swap. A head that doesn't follow the one that is
/// here reverts, so that a duplicate, a rolled-back log or a second history costs nothing: estimating the gas finds it.
/// The history of a log are its events, in their order. There is no owner and no way to change or remove anything.
contract Head {
    mapping(address => mapping(bytes32 => bytes32)) public head;

    event Anchored(address indexed sender, bytes32 indexed log, bytes32 head);

    error Fork(bytes32 have);

    function anchor(bytes32 log, bytes32 prev, bytes32 next) external {
        mapping(bytes32 => bytes32) storage heads = head[msg.sender];
        bytes32 have = heads[log];
        if (have != prev) revert Fork(have);
        heads[log] = next;
        emit Anchored(msg.sender, log, next);
    }
}
