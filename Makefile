# bodycam. The two commands that a newcomer needs: make demo, make test.
GO ?= go
BIN := bin/bodycam
AGENT ?= builtin
SEEDS ?= 1
KERNELS ?= 6.1 6.12
PARTS ?=
export CGO_ENABLED = 0

.PHONY: all build demo test race lint generate check-generated bench bench-sensor attack corpus liars guest-test test-geth fuzz deps clean help

all: build

build: ## build bin/bodycam and bin/bodycam-verify
	$(GO) build -trimpath -o bin/ ./cmd/...

demo: build ## record an example task three times and show what happened (AGENT=codex for the real codex)
	@AGENT=$(AGENT) sh demo/run.sh

# The chain node that the anchors' tests talk to.
ANVIL ?= $(CURDIR)/.harness/node_modules/@foundry-rs/anvil-linux-amd64/bin/anvil

test: deps ## all tests, with what they need installed first
	ANVIL=$(ANVIL) $(GO) test -timeout 25m ./...
	cd internal/anchor/interop && $(GO) vet . && $(GO) test -timeout 5m .

race: deps ## the tests of concurrent code under the race detector
	CGO_ENABLED=1 $(GO) test -race -short -timeout 20m $(RACE)

RACE := ./ledger/... ./internal/session/... ./internal/store/... ./internal/hostlog/... ./internal/mirror/... ./internal/query/... ./internal/keyring/... ./internal/sensor/names/... ./internal/model/... ./internal/harness/...

lint: ## formatting, vet, staticcheck
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "gofmt these files:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	sh scripts/staticcheck.sh

generate: ## make the generated files again: eBPF objects, schemas, command reference
	sh scripts/deps.sh generate
	$(GO) generate ./...

check-generated: generate ## prove that the generated files rebuild identically
	git diff --exit-code --stat -- . ':!go.sum'

bench: ## every benchmark once, so that none can rot
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...

bench-sensor: build ## what recording costs, beside strace and auditd (docs/PERFORMANCE.md)
	sh scripts/deps.sh bench
	$(GO) run ./internal/bench/sensor

guest-test: ## try it all on Debian's kernels 6.1 and 6.12, emulated, with cgroup v2 alone (root; an hour): KERNELS=6.1 PARTS="doctor run"
	@for k in $(KERNELS); do sh scripts/guest $$k $(PARTS) || exit 1; done

corpus: ## record runs whose faults are known and see whether `bodycam compare` finds them (docs/EVALUATION.md)
	$(GO) run ./internal/bench/conduct

attack: build ## the attack corpus: executed, found, precision, recall by class (docs/EVALUATION.md)
	$(GO) run ./internal/bench/attack

liars: build ## honest, lying and awkward agents, and what audits say of each (docs/TRUST.md); SEEDS=10 LIARS="-out FILE"
	$(GO) run -trimpath ./internal/trust/liars/table -seeds $(SEEDS) -bodycam $(BIN) $(LIARS)

test-geth: ## the chain's anchors on go-ethereum's own node (a module of its own: 4 minutes of building, once)
	cd internal/anchor/evm/gethtest && $(GO) vet . && $(GO) test -timeout 10m .

fuzz: ## every fuzz target for a few seconds
	sh scripts/fuzz.sh

deps: ## install what the tests need (apt and npm packages, by name)
	@sh scripts/deps.sh test

clean:
	rm -rf bin .harness runs

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -e 's/:.*## /\t/' | expand -t 18
