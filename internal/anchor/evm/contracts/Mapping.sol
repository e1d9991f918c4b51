// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// The contract of the Agent Flight Recorder (arXiv 2609.01931), so that its table can be run again: sender → epoch →
/// {root, previous root, time}. The first anchor of an epoch counts; a later one reverts.
contract Mapping {
    struct Anchor {
        bytes32 root;
        bytes32 prev;
        uint256 time;
    }

    mapping(address => mapping(uint256 => Anchor)) public anchors;

    event Anchored(address indexed sender, uint256 indexed epoch, bytes32 root, bytes32 prev);

    error Exists(bytes32 have);

    function anchor(uint256 epoch, bytes32 root, bytes32 prev) external {
        Anchor storage a = anchors[msg.sender][epoch];
        if (a.time != 0) revert Exists(a.root);
        a.root = root;
        a.prev = prev;
        a.time = block.timestamp;
        emit Anchored(msg.sender, epoch, root, prev);
    }
}
