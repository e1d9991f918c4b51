// Package boxinit is what runs as process 1 of a box: it builds the box from inside, starts its commands, and reaps
// them, as the recorder asks. How it is started, and why it is out of the commands' reach, is told in package
// sandbox.
//
// # The conversation
//
// The recorder and init talk over one unix stream socket. A frame is a 32-bit big-endian length and a JSON object;
// file descriptors travel with the first byte of the frame. Strings that may hold any byte are []byte. The first
// [Request] is a Setup; every one is answered by a [Reply] with its ID. When the socket closes, init ends, and with
// it the box.
package boxinit
