# What a bare machine needs is Go, make and git; a Docker engine is used where one answers, a C compiler for -race.
#
# go.work is the one list of modules: every target that walks modules asks it. The nested modules require their
# siblings at the version of the last release, and at v0.0.0-00010101000000-000000000000 before the first. go.work maps
# both to the directories here. No go.mod has a replace, so with GOWORK=off a nested module does not build before the
# first release, and later it builds with the siblings as they were released. The root module always builds.
# The modules in internal/tools are not in the workspace, so that each tool is built as its authors shipped it.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
MODULES     := $(shell go list -m -f '{{.Dir}}')
# The command speaks of signals and process groups, the bench asks the kernel for CPU times, and itest stops processes.
NOT_WINDOWS := %/bench %/cmd/leasehold %/itest
PACKAGES    ?= $(addsuffix /...,$(if $(filter Windows_NT,$(OS)),$(filter-out $(NOT_WINDOWS),$(MODULES)),$(MODULES)))
LIMIT       := $(if $(shell command -v timeout),timeout 300)
FUZZTIME    ?= 10s
SEEDS       ?= 10000
SEED        ?= 1
DEATHS      ?= 1000
EXPLORE     ?= all
RUN_AS      ?=
REPORT      ?= $(CURDIR)/.cloud/$(shell date -u +%Y%m%dT%H%M%SZ).json
BIN         := $(CURDIR)/.bin
GOLANGCI    := $(BIN)/golangci-lint
GOVULNCHECK := $(BIN)/govulncheck

# each runs a command in the directory of every module, also after a failure, and fails if one did.
define each
	failed=; for dir in $(MODULES); do echo "=> $$dir: $(1)"; (cd "$$dir" && $(2)) || failed+=" $$dir"; done; \
	if [ -n "$$failed" ]; then echo "FAILED: $(1):$$failed" >&2; exit 1; fi
endef

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'\t' '{ printf "%-16s %s\n", $$1, $$2 }'

.PHONY: test
test: servers ## tier 1: the tests of all modules, side by side: minutes; says in the end what took longest, what passed only when run again, and what did not run
	@go run ./internal/tools/alltests $(PACKAGES)

.PHONY: test-short
test-short: ## the tests that need no server
	@go run ./internal/tools/alltests -short $(PACKAGES)

.PHONY: nightly
nightly: ## tier 3: everything long, at full size: hours; PART=mutants runs one part; goes on where an earlier run of the same commit ended
	@internal/tools/nightly.sh

.PHONY: sim
sim: ## SEEDS simulated worlds, a tenth as many of create-only stores, fenced writes, members and tables, from number SEED on
	@SEEDS=$(SEEDS) CREATEONLY=$$(($(SEEDS) / 10)) FENCED=$$(($(SEEDS) / 10)) TABLES=$$(($(SEEDS) / 10)) SEED=$(SEED) go test -v -count=1 -timeout=24h -run Seeds ./internal/proof/sim | grep -v '^=== '

.PHONY: explore
explore: ## the exhaustive search with all its configurations: ten minutes on two CPUs, and longer for three with offers
	@EXPLORE="$(EXPLORE)" go test -v -count=1 -timeout=24h -run '^(TestAll|TestTables)$$' ./internal/proof/explore | grep -v '^=== '

.PHONY: cli-deaths
cli-deaths: servers ## DEATHS partitions of leasehold run, stops and kills of it: the command must be dead before anyone else leads
	@cd cmd/leasehold && DEATHS=$(DEATHS) go test -count=1 -timeout=2h -parallel=20 -v -run TestTheCommandIsDeadBeforeTheLeaseIs . | grep -v '^=== \|^ *--- PASS'

# The test program takes Ctrl-C itself, to remove its objects. The values go through the environment as they are.
.PHONY: cloud
cloud: export LEASEHOLD_CLOUD_URL = $(value URL)
cloud: export LEASEHOLD_CLOUD_REGION = $(value REGION)
cloud: export LEASEHOLD_CLOUD_REPORT := $(REPORT)
cloud: ## try a bucket of a real cloud: make cloud URL=s3://bucket/prefix, gs or azblob; at most 15 minutes and 0.10 dollars; ends with a row for docs/stores.md
	@[ -n "$$LEASEHOLD_CLOUD_URL" ] || { echo "say where: make cloud URL=s3://bucket/prefix, gs://bucket/prefix or azblob://container/prefix" >&2; exit 64; }
	@cd cmd/leasehold && go test -c -o "$(BIN)/cloud.test" ./internal/cloud
	@LEASEHOLD_SIZE=full LEASEHOLD_CLOUD_VERSION="$$(git describe --tags --always --dirty 2>/dev/null)" exec "$(BIN)/cloud.test"

.PHONY: radosgw
radosgw: ## install Ceph's gateway for the tests, from Debian's packages, as root, or with RUN_AS=sudo
	@command -v radosgw >/dev/null || { $(RUN_AS) apt-get update -qq && $(RUN_AS) env DEBIAN_FRONTEND=noninteractive \
	apt-get install -qq -y --no-install-recommends ceph-mon ceph-osd ceph-mgr radosgw ceph-common ceph-base >/dev/null; }

.PHONY: z3
z3: ## install z3 for the proof, from Debian's packages, as root, or with RUN_AS=sudo
	@command -v z3 >/dev/null || { $(RUN_AS) apt-get update -qq && $(RUN_AS) env DEBIAN_FRONTEND=noninteractive \
	apt-get install -qq -y --no-install-recommends z3 >/dev/null; }

.PHONY: databases
databases: ## install Redis and PostgreSQL for the bench, from Debian's packages, as root, or with RUN_AS=sudo
	@command -v redis-server >/dev/null && ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || { \
	$(RUN_AS) apt-get update -qq && $(RUN_AS) env DEBIAN_FRONTEND=noninteractive \
	apt-get install -qq -y --no-install-recommends redis-server postgresql >/dev/null; }

.PHONY: image
image: ## the image leasehold, which has the command and nothing else
	@go run ./internal/tools/binaries "$(BIN)/image" "linux/$$(go env GOARCH)" && mv "$(BIN)/image/leasehold-linux-$$(go env GOARCH)" "$(BIN)/image/leasehold"
	@docker build --quiet --tag leasehold --file cmd/leasehold/Dockerfile "$(BIN)/image"

.PHONY: binaries
binaries: ## the command for each system, and checksums, in .bin/release; with VERSION also SBOMs and Debian's packages
	@go run ./internal/tools/binaries $(if $(VERSION),-version "$(VERSION)") "$(BIN)/release"

.PHONY: mutants
mutants: ## plant every classic mistake, one at a time, and see each caught: over an hour on two CPUs
	@go run ./internal/proof/mutants $(if $(PASSED),-passed) $(if $(RESULTS),-results "$(RESULTS)") $(if $(WITHIN),-within "$(WITHIN)")

.PHONY: mutants-changed
mutants-changed: ## the same for what has changed since the commit BASE, by default the last one that has landed
	@go run ./internal/proof/mutants -changed $(if $(PASSED),-passed) $(if $(BASE),-base "$(BASE)") $(if $(WITHIN),-within "$(WITHIN)")

.PHONY: servers
servers: ## build the server programs that the tests run (minutes, once)
	@go run ./internal/testkit/testserver/servers

.PHONY: lint
lint: $(GOLANGCI) ## go vet's analyzers, staticcheck and friends
	@$(call each,golangci-lint,CGO_ENABLED=0 $(GOLANGCI) run --config="$(CURDIR)/.golangci.yml" ./...)

.PHONY: compile-published
compile-published: ## compile the command as for each system that its programs are built for
	@go run ./internal/tools/binaries -compile

.PHONY: vet-systems
vet-systems: compile-published ## the same, and go vet of all modules as for Windows and macOS
	@echo "=> GOOS=windows go vet"; CGO_ENABLED=0 GOOS=windows go vet $(addsuffix /...,$(filter-out $(NOT_WINDOWS),$(MODULES)))
	@echo "=> GOOS=darwin go vet"; CGO_ENABLED=0 GOOS=darwin go vet $(addsuffix /...,$(MODULES))

.PHONY: vuln
vuln: $(GOVULNCHECK) ## known vulnerabilities; fails too if their database cannot be reached, unless LEASEHOLD_WITHOUT=vuln
	@$(call each,govulncheck,"$(CURDIR)/internal/tools/vuln.sh" $(GOVULNCHECK))

.PHONY: examples
examples: ## run every program in examples
	@for dir in $(dir $(wildcard examples/*/main.go)); do \
		echo "=> $$dir"; (cd "$$dir" && $(LIMIT) go run . </dev/null) || { echo "FAILED: $$dir" >&2; exit 1; }; \
	done

.PHONY: bench
bench: servers ## measure leasehold and its peers, and write docs/performance.json and what is rendered from it: forty minutes
	@BENCH=full $(MAKE) bench-only
	@$(MAKE) bench-render

.PHONY: bench-only
bench-only: servers ## measure as BENCH, BENCH_DOCS, BENCH_ONLY and BENCH_BUSY say, and render nothing in docs; BENCH_ONLY=handover one section
	@cd bench && go test -count=1 -timeout=2h -v -run TestPerformance . | grep --line-buffered -v '^=== \|^ *--- PASS'

.PHONY: bench-render
bench-render: ## render docs/performance.md, its plots and the figures on other pages from docs/performance.json
	@cd bench/report && RENDER=1 go test -count=1 -run TestPageIsRendered .

.PHONY: fuzz
fuzz: ## every fuzz test for FUZZTIME
	@$(call each,fuzz,go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | while read -r pkg; do \
		for f in $$(go test -short -list '^Fuzz' "$$pkg" | grep '^Fuzz' || true); do \
			go test -short -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) "$$pkg" || exit 1; \
		done; \
	done)

.PHONY: fmt-check
fmt-check:
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "not formatted by gofmt:" >&2; echo "$$out" >&2; exit 1; fi

.PHONY: tidy
tidy: ## tidy go.mod and go.sum of every module, and go.work
	@internal/tools/tidy.sh

.PHONY: tidy-check
tidy-check:
	@internal/tools/tidy.sh -check

.PHONY: release
release: ## prove a release and build its programs, then commit, tag and build them from the tag: make release VERSION=v0.1.0; does not push
	@go run ./internal/tools/release "$(VERSION)"
	@$(MAKE) --no-print-directory binaries

.PHONY: release-check
release-check: ## a module outside can get and build every published module, were they released as they are
	@go run ./internal/tools/release -check

.PHONY: ci
ci: ## what CI runs
	@bash .ci/run

$(GOLANGCI): internal/tools/lint/go.sum
	@echo "building golangci-lint (a minute, once)"
	@cd internal/tools/lint && GOWORK=off GOFLAGS= CGO_ENABLED=0 go build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(GOVULNCHECK): internal/tools/vuln/go.sum
	@cd internal/tools/vuln && GOWORK=off GOFLAGS= CGO_ENABLED=0 go build -o $@ golang.org/x/vuln/cmd/govulncheck
