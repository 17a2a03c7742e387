# make check is the one gate. Tools are installed into .tools at the versions
# named here.
GOLANGCI_VERSION := v2.15.0
TOOLS := $(CURDIR)/.tools
GOLANGCI := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)

.PHONY: check format vet lint floors test race fallback wasip1 tidy build fuzz bench-memory bench-sandbox check-bench crash hostile

check: format vet lint floors wasip1 tidy race

build:
	go build -o carrel ./cmd/host

format:
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not formatted:"; echo "$$out"; exit 1; fi

vet:
	go vet ./...

lint: $(GOLANGCI)
	$(GOLANGCI) run ./...

$(GOLANGCI):
	@mkdir -p $(TOOLS)
	GOFLAGS= GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv $(TOOLS)/golangci-lint $(GOLANGCI)

floors:
	go test ./internal/arch

wasip1:
	GOOS=wasip1 GOARCH=wasm go build ./abi . ./sdk/go

# tidy proves that go.mod and go.sum are what the code needs.
tidy:
	go mod tidy -diff

test:
	go test ./...

race:
	go test -race -timeout 20m ./...

# fallback checks what systems other than Linux on amd64 get: the code for
# those that people develop on, and the sandbox as they have it. Its tests then
# run on plain copies of guests' memory, and where the kernel refuses what is
# faster. The first vet for a system compiles all that the module needs for
# it, a minute or so: make fallback OTHERS=windows/amd64 does less.
OTHERS ?= darwin/arm64 windows/amd64 freebsd/amd64 linux/arm64
fallback:
	@for other in $(OTHERS); do echo "go vet for $$other"; \
	  GOOS=$${other%/*} GOARCH=$${other#*/} CGO_ENABLED=0 go vet -gcflags='all=-N -l' ./... || exit 1; done
	go vet -tags portable ./host/sandbox/...
	go test -tags portable ./host/sandbox ./host/sandbox/image
	go test ./host/sandbox -run '^TestGuestsRunWithoutTheFasterMethods$$' -count=1

# crash kills the host many times under load: make crash KILLS=1000
KILLS ?= 200
crash:
	CARREL_TEST_KILLS=$(KILLS) go test ./host/crash -run '^TestCrashes$$' -count=1 -v -timeout 60m

# hostile runs every hostile module and plugin, and holds the host to its
# numbers: on a machine that has nothing else to do.
hostile:
	CARREL_TEST_STRICT=1 go test ./host/sandbox/hostile ./host/siege -run 'Hostile|AgainAndAgain|ModulesAreWhatTheySay' -count=1 -v -timeout 60m

# bench-memory measures chat memory beside peers and keeps the table.
bench-memory:
	@mkdir -p bench/results
	go run ./bench/memory -out bench/results/memory.md

# bench-sandbox measures calls of guests beside peers and keeps the table. The
# peers are in a module apart, which the first run downloads.
bench-sandbox:
	@mkdir -p bench/results
	go -C bench/sandbox run . -out ../results/sandbox.md

# check-bench holds that module to what check asks of this one.
check-bench: $(GOLANGCI)
	go -C bench/sandbox vet ./...
	cd bench/sandbox && GOOS=wasip1 GOARCH=wasm go vet ./guests/...
	cd bench/sandbox && $(GOLANGCI) run ./...
	go -C bench/sandbox mod tidy -diff

# fuzz runs every fuzz target for a while: make fuzz FUZZTIME=5m
FUZZTIME ?= 30s
fuzz:
	@for pkg in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "$$pkg $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
	  done; \
	done
