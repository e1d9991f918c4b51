package witness

import (
	"github.com/bodycam-dev/bodycam/ledger/checkpoint"
)

// ofRecorder tells whether a checkpoint is signed by the key of a recorder all of whose logs are watched: a recorder begins
// a log for each run, and nobody could tell a witness of all of them before.
func (s *Server) ofRecorder(n *checkpoint.Note) bool {
	keys := make([]checkpoint.Key, len(s.Recorders))
	for i, k := range s.Recorders {
		keys[i] = checkpoint.Key{Name: n.Origin, Alg: k.Alg, Public: k.Public}
	}
	return signedByOne(n, keys)
}
