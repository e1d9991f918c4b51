// Package a2a reads what A2A agents really serve: agent cards and replies of versions 0.2, 0.3 and 1.0, in one form,
// leniently. Whatever departs from the specification is accepted where its meaning is plain, and listed as a
// [Deviation] with its place.
//
// The official Go SDK refuses cards that leave out preferredTransport and relative URLs, and takes each data: line of an
// event stream for an event; an audit must not fail on an agent for that. Its gRPC transport is used as it is.
package a2a
