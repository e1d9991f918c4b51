// Package kind reads what a run is made of and resolves it into a plan: kinds (declarative YAML that configures a
// class of tasks), tasks (Harbor, terminal-bench and SkillsBench directories, bodycam's own task.yaml, a bare
// command) and the Dockerfiles in them.
//
// The package only reads files. It never runs anything, never opens a connection and never writes. What it reads
// may be hostile (a task comes from a stranger), so every path is confined to the directory that it belongs to,
// and every size is bounded.
//
// The way through it:
//
//	k, err := kind.Load("harbor")             // built-in name or file; extends are followed
//	t, err := kind.LoadTask("tasks/citations") // whichever form it has
//	p, err := kind.Resolve(k, t, kind.Overrides{Model: "…"})
//
// A [Plan] holds everything that a session needs, in order, and can be stored as JSON. What a task asked for and
// the plan can't give is listed in it ([Plan.Unhonoured]), never dropped.
//
// Errors in files are [Problems]: all of a file's faults at once, each with file, line, column and, where there is
// one, the nearest right name.
package kind
