package cli

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/internal/trust/score"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// probeFlags are the flags of `bodycam probe`.
type probeFlags struct {
	kind, declaration, parser          string
	chat, chatModel                    string
	client                             []string
	skill                              string
	out, resume, rescore               string
	tampered                           bool
	probes, repeat                     int
	seed                               uint64
	probesFile, writeProbes            string
	budget                             float64
	rounds                             int
	concurrency, retries               int
	rate, costEach                     float64
	timeout                            time.Duration
	bearer, oauthURL, oauthID, oauthSe string
	apiKeys, oauthScopes               []string
	credentialsTo                      []string
	cert, key, ca, cardKeys            string
	traces, mlflow, experiment         string
	traceWait                          time.Duration
	assess                             bool
	rules                              score.Options
	sideEffects                        bool
	judge                              probeJudge
	judgeError                         string
	json, quiet, verbose, noSeal       bool
	sarif, junit, baseline, contract   string
	holds                              time.Duration
	service                            serviceFlags
}

func probeCommand(s *streams) *cobra.Command {
	f := probeFlags{rules: score.Defaults()}
	cmd := &cobra.Command{
		Use:   "probe TARGET [flags] | probe [flags] --port N -- COMMAND [ARG…] | probe --skill DIR | probe --rescore DIR",
		Short: "Audit whether an agent keeps to what it declares",
		Long: `Read what an agent declares, ask it questions in scope, out of scope and near-miss, see what it says and does, and
judge whether that is what it declares.

TARGET is the URL of an A2A agent or of its card. With "--" the command is the agent: it runs in our sandbox, listens on
--port of its loopback, and the kernel's record shows what it does for each probe. Agents that speak something else are
reached with --chat (an OpenAI-compatible endpoint) or --client (a command that gets the prompt on standard input), and
declared by --declaration. With --mcp TARGET is a tool server's URL, or the command one, on standard streams or with --port
over streamable HTTP: its tools are called in the sandbox and held to their annotations.

With --skill a folder with a SKILL.md is audited: tasks within it are given to an agent program (--agent) that has the skill, in
the sandbox, and what it touches is held to what SKILL.md names.

What the agent did is told by its traces (--traces), by its replies, and by the kernel. Without any of these the verdict
says "text only". docs/TRUST.md explains scores, patterns and gate.

Secrets are given as env:NAME or file:PATH, and are never printed or kept.` +
			exits("0  the gate passed", "1  the gate failed", "2  usage or configuration is wrong", "3  the environment failed: the agent can't be reached, …", "4  inconclusive"),
		Example: `  bodycam probe https://agent.example --traces otlp
  bodycam probe https://agent.example --traces mlflow --mlflow-url http://127.0.0.1:5000 --experiment agents --bearer env:TOKEN
  bodycam probe --port 8080 --workspace . --network none -- ./my-agent --listen 127.0.0.1:8080
  bodycam probe --skill ./pdf --agent codex --model-url https://api.openai.com/v1 --model-key-env OPENAI_API_KEY
  bodycam probe --mcp -- npx -y @modelcontextprotocol/server-everything
  bodycam probe --rescore audits/20261130T101112Z-1a2b3c4d --threshold 80`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s.outlive()
			target, command, err := targetArgs(args, cmd.ArgsLenAtDash())
			if err != nil {
				return err
			}
			if err := f.service.misplaced(cmd.Flags(), f.skill != "", len(command) > 0, f.service.mcp); err != nil && f.rescore == "" {
				return err
			}
			return f.run(cmd.Context(), s, target, command)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func targetArgs(args []string, dash int) (target string, command []string, err error) {
	if dash >= 0 {
		args, command = args[:dash], args[dash:]
		if len(command) == 0 {
			return "", nil, usage("there is no command after --")
		}
	}
	if len(args) > 1 {
		return "", nil, usage("want one TARGET, not %s", strings.Join(args, " "))
	}
	if len(args) == 1 {
		target = args[0]
	}
	return target, command, nil
}

func (f *probeFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.declaration, "declaration", "", "where the declaration is, if not at TARGET: card, tool list, SKILL.md, YAML; a URL or file")
	fl.StringVar(&f.kind, "kind-of-declaration", "", "a2a, mcp, skill, yaml or external (default: told from the declaration)")
	fl.StringVar(&f.parser, "parser", "", "command that reads a declaration of another kind and prints it in JSON")
	fl.StringVar(&f.chat, "chat", "", "reach the agent at this OpenAI-compatible base URL")
	fl.StringVar(&f.chatModel, "chat-model", "", "model name for --chat")
	fl.StringArrayVar(&f.client, "client", nil, "reach the agent through a command: program, then one --client for each argument")
	fl.StringVar(&f.skill, "skill", "", "audit the Agent Skill in this folder: tasks within it are given to an agent program in the sandbox")
	fl.StringVarP(&f.out, "out", "o", "audits", "folder for audits")
	fl.StringVar(&f.resume, "resume", "", "take up an interrupted audit")
	fl.StringVar(&f.rescore, "rescore", "", "score a finished audit again under the rules given; nobody is asked anything. Its seal is verified first")
	fl.BoolVar(&f.tampered, "tampered", false, "with --rescore: score even an audit whose seal doesn't hold; the report says so")

	fl.IntVar(&f.probes, "probes", 20, "probes a scope")
	fl.IntVar(&f.repeat, "repeat", 1, "how often each is sent (pass^k)")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of probes and of the bootstrap")
	fl.StringVar(&f.probesFile, "probes-from", "", "send the probes in this file (JSON Lines) instead of making some")
	fl.StringVar(&f.writeProbes, "write-probes", "", "write the probes to this file, and stop")
	fl.Float64Var(&f.budget, "unseen", .05, "add probes until the estimated chance of seeing a new tool is below this (needs traces)")
	fl.IntVar(&f.rounds, "rounds", 2, "how often probes are added at most")

	fl.IntVar(&f.concurrency, "concurrency", 4, "probes at once; 1 where the kernel records")
	fl.Float64Var(&f.rate, "rate", 0, "probes a second at most")
	fl.Float64Var(&f.costEach, "cost-each", 0, "what a message costs, for the estimate")
	fl.DurationVar(&f.timeout, "timeout", 2*time.Minute, "the longest for one answer")
	fl.IntVar(&f.retries, "retries", 2, "tries after a dropped connection, a rate limit or a server's error")

	fl.StringVar(&f.bearer, "bearer", "", "bearer token (env:NAME or file:PATH)")
	fl.StringArrayVar(&f.apiKeys, "api-key", nil, "HEADER=env:NAME or HEADER=file:PATH (repeatable)")
	fl.StringVar(&f.oauthURL, "oauth-token-url", "", "OAuth client credentials: token endpoint")
	fl.StringVar(&f.oauthID, "oauth-client", "", "OAuth client id")
	fl.StringVar(&f.oauthSe, "oauth-secret", "", "OAuth client secret (env:NAME or file:PATH)")
	fl.StringArrayVar(&f.oauthScopes, "oauth-scope", nil, "OAuth scope (repeatable)")
	fl.StringVar(&f.cert, "client-cert", "", "client certificate, PEM file")
	fl.StringVar(&f.key, "client-key", "", "its key, PEM file")
	fl.StringVar(&f.ca, "ca", "", "certificate authorities to trust, PEM file")
	fl.StringArrayVar(&f.credentialsTo, "credentials-to", nil, "HOST or HOST:PORT that gets the credentials too, beside TARGET's host (repeatable)")
	fl.StringVar(&f.cardKeys, "card-keys", "", "JSON Web Key Set that the card's signatures must hold under")

	fl.StringVar(&f.traces, "traces", "none", "where the agent's traces are: none, otlp, otlp=ADDRESS:PORT (we receive), or mlflow")
	fl.StringVar(&f.mlflow, "mlflow-url", "", "MLflow tracking server")
	fl.StringVar(&f.experiment, "experiment", "", "MLflow experiment")
	fl.DurationVar(&f.traceWait, "trace-wait", 15*time.Second, "how long traces may come late")
	fl.BoolVar(&f.assess, "assess", false, "write verdicts back to MLflow as assessments")

	fl.StringVar(&f.rules.Scoring, "scoring", f.rules.Scoring, "bodycam, or agenttrust: the published formula")
	fl.Float64Var(&f.rules.Threshold, "threshold", f.rules.Threshold, "of the gate, 0 to 100")
	fl.Float64Var(&f.rules.Consistency, "consistency", f.rules.Consistency, "share of in-scope probes with tool calls from which a baseline is consistent")
	fl.Float64Var(&f.rules.MaxExcluded, "max-excluded", f.rules.MaxExcluded, "share of excluded probes above which there is no verdict")
	fl.Float64Var(&f.rules.Tolerance, "tolerance", f.rules.Tolerance, "a pattern surely more frequent than this fails the gate")
	fl.StringArrayVar(&f.rules.Allow, "allow-tool", nil, "a tool that you know to be in order (repeatable)")
	fl.StringArrayVar(&f.rules.Hosts, "allow-host", nil, "a host that you know to be in order, with those below it; those of --allow are (repeatable)")
	fl.BoolVar(&f.sideEffects, "allow-side-effects", false, "send probes although the agent could change things outside our sandbox")
	f.judge.add(fl)
	fl.StringVar(&f.judgeError, "judge-error", "", "correct scores for the judge's error, measured in this output of \"bodycam judge eval --json\"")

	fl.BoolVar(&f.json, "json", false, "print the report as JSON")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "no progress")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "list every probe and finding")
	fl.BoolVar(&f.noSeal, "no-seal", false, "don't seal the audit in a ledger")
	fl.StringVar(&f.sarif, "sarif", "", "also write SARIF to this file")
	fl.StringVar(&f.junit, "junit", "", "also write JUnit XML to this file")
	fl.StringVar(&f.baseline, "baseline", "", "an earlier audit: show what has changed since")
	fl.StringVar(&f.contract, "contract", "", "write what was learned as a behavioural contract to this file")
	fl.DurationVar(&f.holds, "contract-holds", 30*24*time.Hour, "how long the contract holds")
	f.service.add(fl)
}

// correction reads the judge's measured error.
func (f *probeFlags) correction() error {
	if f.judgeError == "" {
		return nil
	}
	in, err := os.Open(f.judgeError)
	if err != nil {
		return usage("--judge-error: %w", err)
	}
	defer in.Close()
	if f.rules.Correction, err = score.ReadCorrection(in); err != nil {
		return withHint(usage("--judge-error %s: %w", f.judgeError, err), "bodycam judge eval replies.jsonl --json > FILE, on labelled replies, with the same --judge")
	}
	return nil
}

// corrects refuses the error of another judge than that of the audit.
func (f *probeFlags) corrects(judge string) error {
	c := f.rules.Correction
	if name, _, _ := strings.Cut(judge, ", rubric "); c == nil || c.Judge == name {
		return nil
	}
	return withHint(usage("--judge-error %s is of another judge (%s) than this audit's (%s)", f.judgeError, bodycam.Printable(c.Judge), bodycam.Printable(judge)),
		"measure this one: bodycam judge eval replies.jsonl --json > FILE, with the same --judge")
}

// ranges refuses numbers that can't be meant. What is no number at all is in no range.
func (f *probeFlags) ranges() error {
	const most = 1e9
	for _, n := range []struct {
		flag            string
		value, from, to float64
		want            string
	}{
		{"probes", float64(f.probes), 1, most, "at least 1"},
		{"repeat", float64(f.repeat), 1, most, "at least 1"},
		{"unseen", f.budget, 0, 1, "0 to 1"},
		{"rounds", float64(f.rounds), 0, most, "0 or more"},
		{"concurrency", float64(f.concurrency), 1, most, "at least 1"},
		{"rate", f.rate, 0, most, "0 (no limit) or more"},
		{"cost-each", f.costEach, 0, most, "0 or more"},
		{"retries", float64(f.retries), 0, most, "0 or more"},
		{"threshold", f.rules.Threshold, 0, 100, "0 to 100"},
		{"consistency", f.rules.Consistency, 0, 1, "a share, 0 to 1"},
		{"max-excluded", f.rules.MaxExcluded, 0, 1, "a share, 0 to 1"},
		{"tolerance", f.rules.Tolerance, 0, 1, "a share, 0 to 1"},
	} {
		if !(n.value >= n.from && n.value <= n.to) {
			return usage("--%s %v: want %s", n.flag, n.value, n.want)
		}
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
		none  bool // 0 has a meaning
	}{
		{"timeout", f.timeout, false}, {"trace-wait", f.traceWait, true}, {"contract-holds", f.holds, false},
		{"ready-wait", f.service.wait, false}, {"idle", f.service.idle, true}, {"settle", f.service.settle, true},
	} {
		if d.value < 0 || d.value == 0 && !d.none {
			return usage("--%s %v: want a duration above 0", d.flag, d.value)
		}
	}
	return nil
}

// run carries the audit out.
func (f *probeFlags) run(ctx context.Context, s *streams, target string, command []string) error {
	f.rules.Seed = f.seed
	if f.rules.Scoring != score.Bodycam && f.rules.Scoring != score.Agenttrust {
		return usage("--scoring %s: want bodycam or agenttrust", f.rules.Scoring)
	}
	if err := f.ranges(); err != nil {
		return err
	}
	if err := errors.Join(f.correction(), f.outputs()); err != nil {
		return err
	}
	switch {
	case f.rescore != "":
		return f.again(ctx, s)
	case f.service.mcp && f.skill != "":
		return usage("--mcp and --skill exclude each other")
	case f.service.mcp:
		return f.tools(ctx, s, target, command)
	}
	p := &probing{f: f, s: s, target: target, command: command}
	return p.do(ctx)
}
