// Package rules is a rule language over events: Falco's, since that is what people have, with what a sandbox can
// say beyond it.
//
// # Files
//
// A rule file is a YAML list of rules, macros and lists, as Falco reads it: rule, desc, condition, output, priority,
// tags, source, enabled, exceptions, warn_evttypes, skip-if-unknown-filter; macro, condition; list, items;
// override with append or replace, and the older append: true; required_engine_version, required_plugin_versions.
// [Load] reads several files in order and returns all errors at once, each with file, line, column and, where one is
// near, the name that may have been meant.
//
// # Conditions
//
//	or        = and { "or" and }
//	and       = not { "and" not }
//	not       = { "not" } check
//	check     = "(" or ")" | macro | left "exists" | left order (number | right)
//	          | left text [ modifier ] (value | list | right) | left set (list | right)
//	left      = field | transformer
//	right     = "val(" field ")" | transformer
//	field     = name { "." name } [ "[" argument "]" ]
//	order     = "<" | "<=" | ">" | ">="
//	text      = "=" | "==" | "!=" | contains | icontains | bcontains | startswith | bstartswith | endswith
//	          | glob | iglob | regex
//	set       = in | intersects | pmatch
//	modifier  = oneof | anyof | allof                          (before a list)
//	transformer = (tolower | toupper | b64 | basename | len | join | concat | getopt) "(" arguments ")" [ "[" letter "]" ]
//	list      = "(" [ value { "," value } ] ")" | name of a list
//	value     = quoted text with \ escapes | bare word (the name of a list stands for its items, inside a list)
//
// A field that an event doesn't have makes every comparison false and "exists" false, also "!=", as in Falco.
//
// A field that Falco knows and our events can't supply makes a rule unsupported when its condition needs it:
// [Set.Unsupported] names it. In an output it prints <NA>.
//
// # What differs from Falco
//
// A file has more than one name. A check that helps to raise an alert looks at every name of the file (canonical, as
// given, hard links, before a rename, behind a bind mount), a check below an odd number of "not", or with "!=", only
// at the canonical one: a second name neither hides a file nor excuses it. This holds for fd.name, fd.directory,
// fd.filename, fs.path.*, evt.arg.path and their kin.
//
// Every event is there once, when the call has returned; evt.dir is always "<". The domain names of fd.sip.name are
// those that the process asked for; nothing is looked up. "!=" on a list of values is true where none is equal.
//
// # Sequences
//
//   - rule: Secret sent away
//     sequence:
//     by: process_tree      # or process, or run
//     within: 10m
//     taint: true
//     steps:
//   - open_read and secret_file
//   - outbound and not trusted_host
//
// A process tree is the process that the agent program started, with all its descendants: what one tool call does.
// With taint the second step must be done by a process that may hold the data: the process that did the first, its
// children, whoever reads a file or pipe that such a process wrote, along renames and links. Each fork and each file
// on the way multiplies the match's confidence by 0.9; where only the tree joins the steps it is 0.5 (with by: run,
// the tree is not enough).
//
// # Thresholds
//
//	threshold:
//	  over: 100                  # calls; with "sum: body.bytes_written" bytes; with "distinct: host.name" names
//	  within: 30s
//	  by: process_tree
//
// A rule with a threshold matches when its condition was true more often than that within the time.
//
// # Other keys of ours
//
// mode (alert, stop, deny) says what happens while the run goes on; class and example are for people.
package rules
