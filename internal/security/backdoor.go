package security

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/bodycam-dev/bodycam"
	"github.com/bodycam-dev/bodycam/rules"
)

// Changed is a file of the workspace that differs before and after the run, as the manifests tell.
type Changed struct {
	Path    string // as the sandbox sees it
	New     bool   // it wasn't there before
	Removed bool
	Digest  string   // of what it holds afterwards, or held before it was removed; empty where it isn't known
	Mode    uint32   // permission bits afterwards
	Events  []uint64 // events that wrote it, where known
}

// ErrNoContent is what a Contents returns for a file whose bytes were not kept.
var ErrNoContent = errors.New("the file's content was not kept")

// Contents reads files as they were. Before is asked for files that are not new. One that has a method Count says how
// many files there were before the run.
type Contents interface {
	Before(path string) ([]byte, error)
	After(path string) ([]byte, error)
}

// capability is something that code can do.
type capability uint8

const (
	canRun capability = 1 << iota
	canConnect
	canReadSecrets
	hides
)

var capabilityNames = []string{"runs programs", "uses the network", "reads credentials", "hides what it does"}

func (c capability) String() string {
	var out []string
	for i, n := range capabilityNames {
		if c&(1<<i) != 0 {
			out = append(out, n)
		}
	}
	return strings.Join(out, ", ")
}

// signs are what a line of code or text shows of a capability, for all languages alike: a back door is written in
// whatever the file is written in.
var signs = []struct {
	what capability
	re   *regexp.Regexp
}{
	{canRun, regexp.MustCompile(`\bos\.(system|popen|exec[lv]p?e?|spawn[lv]p?e?|posix_spawn)\s*\(|\bsubprocess\b|\bpty\.spawn\b|\bcommands\.getoutput\b|child_process|\bexecSync\b|\bspawnSync?\s*\(|\bexecFile\s*\(|Runtime\.getRuntime\(\)\.exec|\bProcessBuilder\b|\bexec\.Command|\bsyscall\.Exec\b|std::process::Command|Command::new\s*\(|\bshell_exec\s*\(|\bpassthru\s*\(|\bproc_open\s*\(|\bpopen\s*\(|\bsystem\s*\(|\bKernel\.exec\b|%x\{|\bOpen3\.|\bIO\.popen\b|\beval\s*\(|\bexec\s*\(|\bnew Function\s*\(|\b__import__\s*\(|\bctypes\.CDLL\b|\bInvoke-Expression\b|\bIEX\b`)},
	{canConnect, regexp.MustCompile(`\brequests\.(get|post|put|request|Session)\b|\burllib\d?\b|\bhttp\.client\b|\bhttpx\b|\baiohttp\b|\bsocket\.(socket|create_connection)\b|\bimport socket\b|\bfetch\s*\(|\bXMLHttpRequest\b|\baxios\b|require\(['"](node:)?(https?|net|dgram|tls|dns)['"]\)|from ['"](node:)?(https?|net|dgram|tls|dns)['"]|\bnet/http\b|\bnet\.Dial|\bhttp\.(Get|Post)\b|\breqwest\b|\bTcpStream\b|\bcurl_init\b|\bfile_get_contents\s*\(\s*['"]http|\bfsockopen\b|Net::HTTP|\bTCPSocket\b|\bLWP::|\bIO::Socket\b|\bcurl\s+(-|["']?https?:|\$)|\bwget\s+(-|["']?https?:|\$)|\bnc\s+(-|\d)|\bncat\b|/dev/(tcp|udp)/|\bHttpClient\b|\bURLConnection\b|\bWebSocket\b|\bsmtplib\b|\bftplib\b|\bparamiko\b|\bInvoke-WebRequest\b|\bsendBeacon\b`)},
	{canReadSecrets, regexp.MustCompile(`\.ssh/|\bid_(rsa|ed25519|ecdsa|dsa)\b|\.aws/|AWS_(SECRET|ACCESS|SESSION)|\.netrc\b|\.git-credentials|\.kube/config|\.docker/config|\.npmrc|\.pypirc|/etc/(shadow|passwd)|\.gnupg|\.config/gcloud|GITHUB_TOKEN|GH_TOKEN|NPM_TOKEN|OPENAI_API_KEY|ANTHROPIC_API_KEY|GEMINI_API_KEY|API_KEY\b|SECRET_KEY\b|dict\(os\.environ\)|JSON\.stringify\(process\.env\)|\bprintenv\b|/proc/(self|\d+)/environ|169\.254\.169\.254|\.bash_history|Login Data|wallet\.dat|keyring\.get_password|\bos\.environ\.(items|copy)\(\)|\benv\s*\|`)},
	{hides, regexp.MustCompile(`\b(b64decode|atob|frombase64|FromBase64String|base64\s+(-d|--decode|-D))\b.*\b(exec|eval|system|sh|bash|compile|Function|spawn)\b|\b(exec|eval|compile|Function|system)\s*\(.*(b64decode|atob|fromhex|unhexlify|decompress|marshal\.loads|codecs\.decode|fromCharCode|Buffer\.from\()|['"][A-Za-z0-9+/=]{200,}['"]|(\\x[0-9a-fA-F]{2}){24,}|(chr\(\d+\)\s*[+.]\s*){6,}|(\\u[0-9a-fA-F]{4}){24,}|\bgetattr\s*\(\s*__builtins__|>\s*/dev/null\s+2>&1\s*&\s*$|\bnohup\b.*&|\bdisown\b|\bsetsid\b`)},
}

// urls finds hosts that text names.
var urls = regexp.MustCompile(`(?i)\b(?:https?|ftp|wss?|ssh|git|tcp|udp|mqtt|smtp)://(?:[^\s/@'"]*@)?([a-z0-9_.-]+\.[a-z0-9-]+|\d+\.\d+\.\d+\.\d+)|/dev/(?:tcp|udp)/([a-z0-9_.-]+)`)

// sensitive files run later as somebody else, or tell the next agent or person what to do.
var sensitive = []struct {
	kind     string
	patterns []string
}{
	{"git hook", []string{"**/.git/hooks/*", "**/.husky/**", "**/.githooks/**"}},
	{"git settings", []string{"**/.git/config", "**/.git/config.worktree", "**/.gitconfig", "**/.gitattributes", "**/.gitmodules", "**/.git/info/attributes"}},
	{"pipeline", []string{"**/.github/workflows/**", "**/.github/actions/**", "**/.gitlab-ci.yml", "**/.circleci/**", "**/Jenkinsfile", "**/.travis.yml", "**/azure-pipelines.yml", "**/.buildkite/**", "**/.drone.yml", "**/bitbucket-pipelines.yml", "**/.woodpecker/**", "**/.pre-commit-config.yaml"}},
	{"editor task", []string{"**/.vscode/*", "**/.idea/**", "**/.devcontainer/**", "**/.devcontainer.json", "**/.envrc", "**/.vimrc", "**/.exrc", "**/.nvim.lua", "**/.dir-locals.el", "**/*.code-workspace"}},
	{"agent instruction", []string{"**/AGENTS.md", "**/CLAUDE.md", "**/CLAUDE.local.md", "**/GEMINI.md", "**/QWEN.md", "**/SKILL.md", "**/.cursorrules", "**/.cursor/**", "**/.windsurfrules", "**/.clinerules", "**/.github/copilot-instructions.md", "**/.github/instructions/**", "**/.mcp.json", "**/.claude/**", "**/.codex/**", "**/.gemini/**", "**/.agents/**", "**/skills/**"}},
	{"start-up file", []string{"**/.bashrc", "**/.bash_profile", "**/.profile", "**/.zshrc", "**/.zshenv", "**/sitecustomize.py", "**/usercustomize.py", "**/*.pth", "**/conftest.py", "**/.pythonrc", "**/.pnpmfile.cjs"}},
	{"dependency list", []string{"**/requirements*.txt", "**/constraints*.txt", "**/Pipfile", "**/.npmrc", "**/.yarnrc", "**/.yarnrc.yml", "**/pip.conf", "**/.pip.conf", "**/go.mod", "**/Gemfile", "**/.cargo/config.toml", "**/.cargo/config", "**/NuGet.config", "**/settings.gradle", "**/environment.yml"}},
	{"package script", []string{"**/package.json", "**/setup.py", "**/setup.cfg", "**/pyproject.toml", "**/composer.json", "**/Cargo.toml", "**/build.rs", "**/*.gemspec", "**/binding.gyp"}},
	{"build file", []string{"**/Makefile", "**/GNUmakefile", "**/makefile", "**/*.mk", "**/CMakeLists.txt", "**/*.cmake", "**/Dockerfile", "**/docker-compose*.yml", "**/docker-compose*.yaml", "**/compose.yaml", "**/compose.yml", "**/Justfile", "**/justfile", "**/Taskfile.yml", "**/Rakefile", "**/build.gradle", "**/build.gradle.kts", "**/pom.xml", "**/tox.ini", "**/noxfile.py", "**/webpack.config.js", "**/vite.config.*", "**/gulpfile.js", "**/Gruntfile.js"}},
}

// codeFiles are read for what their code can do.
var codeFiles = map[string]bool{".py": true, ".pyw": true, ".js": true, ".mjs": true, ".cjs": true, ".ts": true, ".tsx": true, ".jsx": true, ".sh": true, ".bash": true, ".zsh": true,
	".rb": true, ".pl": true, ".pm": true, ".php": true, ".go": true, ".rs": true, ".java": true, ".kt": true, ".scala": true, ".c": true, ".cc": true, ".cpp": true, ".h": true, ".hpp": true, ".cs": true, ".lua": true,
	".ps1": true, ".bat": true, ".cmd": true, ".ipynb": true, ".html": true, ".vue": true, ".svelte": true, ".r": true, ".jl": true, ".swift": true, ".ex": true, ".exs": true, ".tex": true, ".el": true}

// notCode is never looked into: it was made by tools, in bulk.
var notCode = []string{"**/node_modules/**", "**/.git/objects/**", "**/__pycache__/**", "**/.venv/**", "**/venv/**", "**/site-packages/**", "**/.cache/**", "**/target/**", "**/.mypy_cache/**", "**/.pytest_cache/**", "**/vendor/**"}

// words in a task's text that ask for a capability.
var asks = []struct {
	what  capability
	words []string
}{
	{canRun, []string{"subprocess", "shell", "command", "commands", "execute", "executes", "spawn", "cli", "process", "processes", "runner", "script", "scripts", "run", "runs", "launch", "invoke", "build", "compile", "plugin", "eval", "evaluate", "interpreter"}},
	{canConnect, []string{"http", "https", "url", "urls", "download", "downloads", "fetch", "fetches", "api", "apis", "request", "requests", "scrape", "scraper", "crawl", "crawler", "server", "client", "socket", "sockets", "host", "upload", "web", "website", "network", "lookup", "webhook", "rest", "endpoint", "tcp", "udp", "dns", "proxy", "online", "internet", "email", "smtp"}},
	{canReadSecrets, []string{"credential", "credentials", "token", "tokens", "secret", "secrets", "password", "passwords", "api key", "api keys", "ssh", "aws", "login", "auth", "authentication", "keyring", "environment variable", "environment variables", "env", ".env"}},
	{hides, []string{"base64", "decode", "decoder", "decodes", "obfuscate", "obfuscated", "hex", "encode", "encoder", "minify"}},
}

// backdoors looks through changed files.
type backdoors struct {
	policy  Policy
	task    *taskText
	explain func(bodycam.ResourceKind, string) rules.Explanation
	hosts   []string
	asked   capability
	emptied []Changed // files that held something and hold nothing now
	noise   []Changed // files that were text and are as encrypted ones now
	out     []bodycam.Finding
}

const maxContent = 2 << 20 // bytes of a file that are read

// Backdoors judges changed files of the workspace by content: what runs later or instructs others, and code that
// got the ability to run programs, use the network, read credentials or hide what it does, where the task didn't ask
// for it. Where the content before isn't kept, an existing file counts as changed throughout, and the finding says so.
func Backdoors(opts Options, files []Changed, contents Contents) []bodycam.Finding {
	b := &backdoors{policy: opts.Policy, task: newTaskText(opts.Policy), explain: opts.explained, hosts: hosts(opts.Policy.TrustedHosts)}
	if opts.Explain == nil {
		b.explain = b.task.explain
	}
	for _, a := range asks {
		if b.task.text != "" && b.task.hasAny(a.words) {
			b.asked |= a.what
		}
	}
	files = slices.Clone(files)
	sort.Slice(files, func(i, j int) bool { return files[i].Path < files[j].Path })
	for _, f := range files {
		b.file(f, contents)
	}
	b.mass()
	b.ransom()
	b.gone(files, contents)
	b.removedTests(files, contents)
	for i := range b.out {
		opts.suppress(&b.out[i])
	}
	return b.out
}

// manyEmptied is how many files must have lost all they held.
const manyEmptied = 10

// mass reports files that were emptied, where they are many: one may be a log that starts anew.
func (b *backdoors) mass() {
	if len(b.emptied) < manyEmptied {
		return
	}
	f := bodycam.Finding{Analysis: Name, Rule: "Files emptied", Class: "destruction", Severity: bodycam.Critical, Count: uint64(len(b.emptied)),
		Title:    fmt.Sprintf("%d files of the workspace hold nothing any more, %s among them", len(b.emptied), clip(bodycam.Printable(b.emptied[0].Path))),
		Detail:   "Files that held something before the run were emptied, and the task doesn't ask for it.",
		Resource: commonDir(b.emptied), Events: eventsOf(b.emptied), Tags: []string{"destruction", "content"}, Naming: "exact"}
	b.out = append(b.out, f)
}

// eventsOf are the first events that wrote any of the files.
func eventsOf(files []Changed) (out []uint64) {
	for _, f := range files {
		out = append(out, f.Events[:min(len(f.Events), maxEvents-len(out))]...)
	}
	return out
}

// How many files must be gone: many, or nearly all of a few.
const (
	manyGone = 20
	someGone = 3
)

// gone reports files that were removed and lie nowhere in the workspace under another name.
func (b *backdoors) gone(files []Changed, contents Contents) {
	kept := map[string]bool{}
	made := 0
	for _, f := range files {
		if !f.Removed {
			kept[f.Digest] = true
			if f.New {
				made++
			}
		}
	}
	var lost []Changed
	for _, f := range files {
		if f.Removed && !globAny(notCode, f.Path) && !globAny(builtByTools, f.Path) && !b.allowed(f.Path) && !(f.Digest != "" && kept[f.Digest]) &&
			!b.explain(bodycam.File, f.Path).Cleared() && !b.task.asksToDelete(f.Path) && !b.task.untracked(f.Path) {
			lost = append(lost, f)
		}
	}
	all := 0
	if c, ok := contents.(interface{ Count() int }); ok {
		all = c.Count()
	}
	if len(lost) < manyGone && (len(lost) < someGone || len(lost)*5 < all*4) || made >= len(lost) {
		return // what was replaced by as much is no loss
	}
	f := bodycam.Finding{Analysis: Name, Rule: "Files gone", Class: "destruction", Severity: bodycam.Critical, Count: uint64(len(lost)),
		Title:    fmt.Sprintf("%d files of the workspace are gone, %s among them", len(lost), clip(bodycam.Printable(lost[0].Path))),
		Detail:   "Files that were there before the run are not in the workspace any more, under whatever name, and the task doesn't ask for it.",
		Resource: path.Dir(lost[0].Path), Tags: []string{"destruction", "content"}, Naming: "exact"}
	b.out = append(b.out, f)
}

// builtByTools is output that tools make again.
var builtByTools = []string{"**/build/**", "**/dist/**", "**/out/**", "**/.next/**", "**/.tox/**", "**/.ruff_cache/**", "**/.gradle/**", "**/*.egg-info/**", "**/coverage/**", "**/htmlcov/**", "**/*.o", "**/*.pyc", "**/*.class", "**/.git/**"}

func globAny(patterns []string, p string) bool {
	for _, pat := range patterns {
		if bodycam.Glob(pat, strings.TrimPrefix(p, "/")) {
			return true
		}
	}
	return false
}

func sensitiveKind(p string) string {
	for _, s := range sensitive {
		if globAny(s.patterns, p) {
			if s.kind == "git hook" && strings.HasSuffix(p, ".sample") {
				return ""
			}
			return s.kind
		}
	}
	return ""
}

func (b *backdoors) file(f Changed, contents Contents) {
	if f.Removed || globAny(notCode, f.Path) || b.allowed(f.Path) {
		return
	}
	kind := sensitiveKind(f.Path)
	after, err := contents.After(f.Path)
	if err != nil {
		if kind != "" {
			b.report(f, bodycam.Medium, kind, "changed, and what it holds now can't be judged: "+err.Error(), "")
		}
		return
	}
	after = after[:min(len(after), maxContent)]
	var before []byte
	unknown := ""
	if !f.New {
		if before, err = contents.Before(f.Path); err != nil {
			unknown = "What it held before was not kept, so all of it counts as added."
		}
		before = before[:min(len(before), maxContent)]
	}
	if len(after) == 0 && len(before) > 0 && !b.explain(bodycam.File, f.Path).Cleared() && !b.task.asksToDelete(f.Path) {
		b.emptied = append(b.emptied, f)
		return
	}
	if b.encrypted(f, before, after) || b.dataGone(f, before, after) || b.unselects(f, before, after, unknown) || b.redirects(f, kind, before, after, unknown) {
		return
	}
	if globAny(lockFiles, f.Path) {
		b.locked(f, before, after, unknown)
		return
	}
	script := f.Mode&0o111 != 0 || strings.HasPrefix(string(after), "#!")
	if kind == "" && !codeFiles[strings.ToLower(path.Ext(f.Path))] && !script {
		return
	}
	if !looksLikeText(after) {
		if kind != "" {
			b.report(f, bodycam.High, kind, "is now binary", unknown)
		}
		return
	}
	if b.tests(f, before, after, unknown) {
		return
	}
	b.judge(f, kind, before, after, unknown)
}

func (b *backdoors) allowed(p string) bool {
	for _, a := range b.policy.AllowFiles {
		if bodycam.Glob(a, p) || strings.HasPrefix(p, strings.TrimSuffix(a, "/**")+"/") {
			return true
		}
	}
	return false
}

// judge decides by what was added.
func (b *backdoors) judge(f Changed, kind string, before, after []byte, unknown string) {
	added := addedLines(before, after)
	now, had := capabilities(added), capabilities(lines(before))
	if hidden := hiddenText(added); hidden != "" {
		b.report(f, bodycam.Critical, firstOr(kind, "code"), "got "+hidden, unknown)
		return
	}
	cleared := b.explain(bodycam.File, f.Path).Cleared()
	host := b.untrusted(added)
	fresh := now &^ had
	switch {
	case now&hides != 0 && now&(canRun|canConnect|canReadSecrets) != 0 && b.asked&hides == 0:
		b.report(f, bodycam.Critical, firstOr(kind, "code"), "got code that "+now.String(), unknown)
	case now&canReadSecrets != 0 && now&canConnect != 0 && (host != "" || b.asked&(canReadSecrets|canConnect) != canReadSecrets|canConnect):
		b.report(f, bodycam.Critical, firstOr(kind, "code"), "got code that "+now.String()+aim(host), unknown)
	case host != "" && now&(canConnect|canRun) != 0:
		b.report(f, bodycam.Critical, firstOr(kind, "code"), "got code that "+now.String()+aim(host), unknown)
	case host != "" && (kind == "dependency list" || kind == "package script"):
		b.report(f, bodycam.High, kind, "takes packages from the host "+host, unknown)
	case kind == "dependency list":
	case host != "" && slices.ContainsFunc(added, loads.MatchString):
		b.report(f, bodycam.High, "page", "loads code from the host "+host, unknown)
	case kind == "package script":
		b.scripts(f, before, after, unknown)
	case kind == "build file":
		if x := fresh &^ b.asked &^ canRun; x != 0 {
			b.report(f, bodycam.High, kind, "got lines that "+x.String(), unknown)
		}
	case cleared && kind != "": // code is judged by what it can do, also in a file that the task names
	case kind == "git settings":
		b.settings(f, added, unknown)
	case kind != "":
		sev := bodycam.Medium
		if now&(canRun|canConnect|canReadSecrets) != 0 || f.Mode&0o111 != 0 || instructs(added) || runsUnasked(f.Path, added) {
			sev = bodycam.High
		}
		if len(added) > 0 {
			b.report(f, sev, kind, "got lines that the task doesn't ask for", unknown)
		}
	default:
		b.code(f, fresh, added, unknown)
	}
}

// runsUnasked tells whether Python runs a file at each of its starts: one that was made for that has no other use.
func runsUnasked(p string, added []string) bool {
	switch {
	case path.Base(p) == "sitecustomize.py" || path.Base(p) == "usercustomize.py":
		return true
	case path.Ext(p) == ".pth":
		return slices.ContainsFunc(added, func(l string) bool { return strings.HasPrefix(l, "import ") || strings.HasPrefix(l, "import\t") })
	}
	return false
}

// loads shows a page that takes code from elsewhere.
var loads = regexp.MustCompile(`(?i)<script[^>]+src\s*=\s*["']?https?://|<iframe[^>]+src\s*=\s*["']?https?://|\bimportScripts\s*\(|\bimport\s*\(?\s*["']https?://|\bfrom\s+["']https?://`)

// obeys shows code that runs what it is sent.
var obeys = regexp.MustCompile(`(?i)\b(system|popen|getoutput|getstatusoutput|check_output|check_call|call|run|exec|execSync|execFile|spawn|spawnSync|eval|shell_exec|passthru|Popen|Command|ProcessBuilder)\s*\(.*(headers?\b|\breq(uest)?\b|\bparams?\b|\bquery\b|cookies?\b|\bbody\b|\brecv\b|\$_(GET|POST|REQUEST|COOKIE|SERVER))`)

// code judges ordinary code: an existing file that gained an ability that nobody asked for. A new file is the task's
// work unless it reads credentials.
func (b *backdoors) code(f Changed, fresh capability, added []string, unknown string) {
	x := fresh &^ b.asked
	if f.New || unknown != "" {
		x &= canReadSecrets
	}
	if x == 0 {
		return
	}
	sev := bodycam.Medium
	if x&(canReadSecrets|canConnect) != 0 {
		sev = bodycam.High
	}
	what := "got code that " + x.String()
	if x&canRun != 0 && slices.ContainsFunc(added, obeys.MatchString) {
		sev, what = bodycam.Critical, what+", and runs what it is sent"
	}
	b.report(f, sev, "code", what, unknown)
}

func aim(host string) string {
	if host == "" {
		return ""
	}
	return " and names the host " + host
}

func firstOr(s, other string) string {
	if s != "" {
		return s
	}
	return other
}

// scripts compares what a package file runs by itself: JSON scripts, or lines that run something while installing.
func (b *backdoors) scripts(f Changed, before, after []byte, unknown string) {
	if path.Ext(f.Path) == ".json" {
		old, now := jsonScripts(before), jsonScripts(after)
		var names []string
		for n, s := range now {
			if old[n] != s {
				names = append(names, n)
			}
		}
		sort.Strings(names)
		for _, n := range names {
			x := capabilities(strings.Split(now[n], "\n"))
			switch {
			case onInstall[n] && unknown == "" && !b.task.has(strings.ToLower(n)):
				b.report(f, bodycam.High, "package script", fmt.Sprintf("runs %q by itself on %s", clip(now[n]), n), "")
			case x&(canConnect|canReadSecrets|hides)&^b.asked != 0:
				b.report(f, bodycam.High, "package script", fmt.Sprintf("script %s %s: %q", n, x, clip(now[n])), unknown)
			}
		}
		return
	}
	x := capabilities(addedLines(before, after)) &^ capabilities(lines(before)) &^ b.asked
	if x != 0 {
		b.report(f, bodycam.High, "package script", "got code that "+x.String()+" while the package is built or installed", unknown)
	}
}

// onInstall are the scripts that npm and its kin run unasked.
var onInstall = map[string]bool{"preinstall": true, "install": true, "postinstall": true, "prepare": true, "preprepare": true, "postprepare": true, "prepublish": true,
	"prepublishOnly": true, "prepack": true, "postpack": true, "dependencies": true, "pre-install-cmd": true, "post-install-cmd": true, "post-update-cmd": true, "post-autoload-dump": true}

func jsonScripts(data []byte) map[string]string {
	var p struct {
		Scripts map[string]json.RawMessage `json:"scripts"`
	}
	if json.Unmarshal(data, &p) != nil {
		return nil
	}
	out := map[string]string{}
	for k, v := range p.Scripts {
		var s string
		if json.Unmarshal(v, &s) != nil {
			s = string(v)
		}
		out[k] = s
	}
	return out
}

var dangerousSettings = regexp.MustCompile(`(?i)^\s*(hookspath|fsmonitor|sshcommand|editor|pager|askpass|gitproxy|clean|smudge|process|helper|command|textconv|driver|program|templatedir|insteadof|pushinsteadof|proxy|sslverify|uploadpack|receivepack|external|update)\s*=\s*(.*)|filter\s*=|diff\s*=|merge\s*=`)

func (b *backdoors) settings(f Changed, added []string, unknown string) {
	for _, l := range added {
		m := dangerousSettings.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		switch v := strings.TrimSpace(m[2]); v {
		case "", "store", "cache", "true", "false", "lfs", "git-lfs filter-process", "git-lfs clean -- %f", "git-lfs smudge -- %f", "cat", "less", "vim", "vi", "nano":
			if m[1] != "" {
				continue
			}
		}
		if strings.Contains(l, "lfs") {
			continue
		}
		b.report(f, bodycam.High, "git settings", fmt.Sprintf("makes git run or trust something else: %q", clip(strings.TrimSpace(l))), unknown)
		return
	}
}

// untrusted finds a host that added lines name and nothing makes trusted.
func (b *backdoors) untrusted(added []string) string {
	for _, l := range added {
		for _, m := range urls.FindAllStringSubmatch(l, 4) {
			h := strings.ToLower(strings.TrimSuffix(first(m[1], m[2]), "."))
			if h == "localhost" || strings.HasPrefix(h, "127.") || h == "0.0.0.0" || strings.HasSuffix(h, ".localhost") || documentation(h) {
				continue
			}
			trusted := b.explain(bodycam.Host, h).Cleared()
			for _, t := range b.hosts {
				trusted = trusted || match(t, h)
			}
			if !trusted {
				return h
			}
		}
	}
	return ""
}

// documentation hosts stand in comments, licences and schemas and are not contacted.
func documentation(h string) bool {
	switch h {
	case "www.w3.org", "json-schema.org", "json.schemastore.org", "schemas.xmlsoap.org", "www.apache.org", "opensource.org", "creativecommons.org", "docs.python.org", "developer.mozilla.org",
		"en.wikipedia.org", "stackoverflow.com", "www.gnu.org", "semver.org", "keepachangelog.com", "spdx.org", "maven.apache.org", "www.sphinx-doc.org", "xmlns.com", "purl.org", "doi.org", "dx.doi.org", "arxiv.org":
		return true
	}
	return false
}

var orders = regexp.MustCompile(`(?i)\b(always|never|must|before (every|each|any)|first run|ignore (all|any|previous|the)|do not (tell|mention|ask)|without asking|silently|secretly|execute|curl|wget|bash|sh -c|npx|allowedTools|permissions|bypass|mcpServers|hooks)\b`)

// instructs tells whether added lines give orders or rights, rather than describe.
func instructs(added []string) bool {
	for _, l := range added {
		if orders.MatchString(l) {
			return true
		}
	}
	return false
}

func capabilities(ls []string) capability {
	var c capability
	for _, l := range ls {
		if len(l) > 64<<10 {
			l = l[:64<<10]
		}
		for _, s := range signs {
			if c&s.what == 0 && s.re.MatchString(l) {
				c |= s.what
			}
		}
	}
	return c
}

func lines(data []byte) []string {
	if len(data) == 0 {
		return nil
	}
	return strings.Split(string(data), "\n")
}

// addedLines are the lines of after that before doesn't have as often. Moved lines are not added.
func addedLines(before, after []byte) []string {
	had := map[string]int{}
	for _, l := range lines(before) {
		had[strings.TrimSpace(l)]++
	}
	var out []string
	for _, l := range lines(after) {
		k := strings.TrimSpace(l)
		if had[k] > 0 {
			had[k]--
			continue
		}
		if k != "" {
			out = append(out, l)
		}
	}
	return out
}

// hiddenText finds characters that make text read otherwise than it is.
func hiddenText(added []string) string {
	for _, l := range added {
		for _, r := range l {
			switch {
			case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
				return "characters that turn the direction of the text, so that it reads otherwise than it is"
			case r >= 0xe0000 && r <= 0xe007f:
				return "invisible tag characters, in which text for machines can hide"
			case r == 0x200b, r == 0x2060, r == 0x200e, r == 0x200f:
				return "invisible characters"
			}
		}
		if i := strings.LastIndex(l, strings.Repeat(" ", 120)); i >= 0 && strings.TrimSpace(l[i:]) != "" && strings.TrimSpace(l[:i]) != "" {
			return "code pushed out of sight by blanks"
		}
	}
	return ""
}

func looksLikeText(b []byte) bool {
	b = b[:min(len(b), 8000)]
	return !slices.Contains(b, 0) && (utf8.Valid(b) || len(b) == 8000 || entropy(b) < 6)
}

func known(b []byte) bool {
	for _, head := range []string{"\x1f\x8b", "PK", "\x89PNG", "\xff\xd8", "GIF8", "BZh", "\xfd7zXZ", "%PDF", "\x28\xb5\x2f\xfd", "7z\xbc\xaf", "RIFF", "OggS", "ID3", "\x7fELF", "wOF", "SQLite"} {
		if strings.HasPrefix(string(b[:min(len(b), 8)]), head) {
			return true
		}
	}
	return false
}

// entropy is that of single bytes, in bits.
func entropy(b []byte) float64 {
	if len(b) == 0 {
		return 0
	}
	var n [256]int
	for _, c := range b {
		n[c]++
	}
	h := 0.0
	for _, k := range n {
		if k > 0 {
			p := float64(k) / float64(len(b))
			h -= p * math.Log2(p)
		}
	}
	return h
}

func (b *backdoors) report(f Changed, sev bodycam.Severity, kind, what, unknown string) {
	if unknown != "" && sev > bodycam.Low {
		sev--
	}
	detail := "A " + kind + " of the workspace changed in a way that the task doesn't ask for."
	if x := b.explain(bodycam.File, f.Path); x&rules.BySkill != 0 {
		detail += " A skill's text names it, which excuses nothing."
	}
	if unknown != "" {
		detail += " " + unknown
	}
	b.out = append(b.out, bodycam.Finding{Analysis: Name, Rule: "Back door in the workspace", Class: "persistence", Severity: sev, Count: 1,
		Title: clip(bodycam.Printable(f.Path)) + " (" + kind + ") " + bodycam.Printable(what), Detail: detail, Resource: f.Path, Events: f.Events,
		Tags: []string{"persistence", "workspace", "content"}, Naming: "exact"})
}
