// Package bodycam holds the vocabulary of the project as types: what an agent's run is made of, what a sensor
// saw, what the agent said, how the two are joined, and what an analysis found.
//
// It performs no I/O and imports nothing of this module, so that recording (internal/sensor), sealing (ledger)
// and judging (rules, internal/analysis) can share words without sharing code.
//
// # Strings are bytes
//
// Everything that comes from inside a sandbox is hostile and need not be UTF-8: paths, arguments, host names,
// transcripts. Such values are Go strings that hold raw bytes. They leave the process in one of two forms:
// [Escape] for machines (lossless, see there) and [Printable] for terminals (never moves a cursor).
package bodycam
