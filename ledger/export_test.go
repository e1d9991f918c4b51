package ledger

// Manual leaves out a writer's goroutines, so that its operations have one order.
func Manual(o Options) Options {
	o.manual = true
	return o
}
