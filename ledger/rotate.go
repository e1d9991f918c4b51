package ledger

func (r *recovery) noteRotation(s *stored, payload []byte) error { return nil }
func completeErasures(store Store) error                         { return nil }
