// Bodyless functions of spawn.go are linked from the runtime; this file lets the compiler accept them.
