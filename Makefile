# Everything below needs Go. The tests and the demo also need PostgreSQL 15 or
# newer, and find or start one by themselves: a server named by
# ONCEQ_TEST_DATABASE_URL, else a container, else installed programs, else a
# download. ONCEQ_TEST_SERVER=url|container|local|download picks one.

GO        ?= go
TOOL      := $(GO) tool -modfile=internal/tools/go.mod
TESTFLAGS ?= -count=1
FUZZTIME  ?= 20s
GENERATED := db/*.sql.go db/db.go db/models.go

.DEFAULT_GOAL := help
.NOTPARALLEL: # gen-check takes db/ away for a moment

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: ## run the demo on a throwaway PostgreSQL
	$(GO) run ./examples/demo

# Run as a program of its own, not by `go run`, which passes no signals on.
.PHONY: testserver
testserver:
	@$(GO) build -o bin/testserver ./internal/testserver

.PHONY: test
test: testserver ## run all tests, on one server
	bin/testserver -- $(GO) test $(TESTFLAGS) ./...

.PHONY: race
race: testserver ## the same under the race detector
	@cc=$$($(GO) env CC); [ "$$($(GO) env CGO_ENABLED)" = 1 ] && command -v "$${cc%% *}" >/dev/null || { \
		echo "The race detector needs cgo and a C compiler. Install one (Debian: apt-get install gcc libc6-dev)" >&2; \
		echo "and leave CGO_ENABLED alone; or run the tests without it: make test" >&2; exit 1; }
	bin/testserver -- $(GO) test -race $(TESTFLAGS) ./...

.PHONY: pooler-test
pooler-test: testserver ## run the library through PgBouncer, which has to be installed
	$(GO) vet -tags pgbouncer ./internal/poolertest
	bin/testserver -- $(GO) test -tags pgbouncer $(TESTFLAGS) ./internal/poolertest

.PHONY: check
check: gen-check fmt-check vet staticcheck sql-check bench-check race ## all that CI checks: generated code, style, benchmark, races

.PHONY: gen
gen: ## make db/ anew from queries/ and schema/
	$(GO) generate ./...

.PHONY: gen-check
gen-check: ## is db/ what queries/ and schema/ say?
	rm -f $(GENERATED)
	$(MAKE) --no-print-directory gen
	@git diff --exit-code -- db && [ -z "$$(git ls-files --others --exclude-standard -- db)" ] || { \
		echo "db/ was out of date and has been made anew: add it to the commit (git add db)" >&2; exit 1; }

.PHONY: fmt-check
fmt-check: ## is all Go code formatted?
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { \
		echo "not formatted, run gofmt -w on:" $$unformatted >&2; exit 1; }

.PHONY: vet
vet: ## run go vet
	$(GO) vet ./...

.PHONY: staticcheck
staticcheck: ## run staticcheck
	$(TOOL) staticcheck ./...

# sqlc reads `=@name` as an operator and drops the parameter without a word.
.PHONY: sql-check
sql-check: ## are the parameters in queries/ written so that sqlc sees them?
	@! grep -nE '[=<>]@[a-z]' queries/*.sql || { \
		echo "write a space before the @ of a parameter" >&2; exit 1; }

# The benchmark is a module of its own; its results are in bench/results.
.PHONY: bench
bench: ## measure beside the floor and beside River (22 minutes)
	cd bench && $(GO) run . --out results

.PHONY: bench-quick
bench-quick: ## measure less, in two minutes
	cd bench && $(GO) run . --quick --out quick

.PHONY: bench-check
bench-check: ## does the benchmark compile, and does all of it run?
	cd bench && $(GO) vet ./... && $(GO) tool -modfile=../internal/tools/go.mod staticcheck ./... && $(GO) test -count=1 ./...

.PHONY: build
build: ## build bin/onceq
	$(GO) build -o bin/onceq ./cmd/onceq

.PHONY: fuzz
fuzz: testserver ## run each fuzz test for FUZZTIME (20s)
	bin/testserver -- sh -c 'grep -rHoE "^func Fuzz[A-Za-z0-9_]+" --include="*_test.go" --exclude-dir=bench . | \
		while IFS=: read -r file name; do \
			$(GO) test -run "^$$" -fuzz "^$${name#func }$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
		done'

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
