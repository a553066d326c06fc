# Targets that work everywhere; `make help` lists them. A build never edits a source.

GO          ?= go
PYTHON      ?= python3
VENV        ?= python/.venv
FUZZTIME    ?= 10s
TESTFLAGS   ?= -race -count=1 -timeout 20m
STATICCHECK  = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: help build test test-go test-python lint fuzz bench demo deploy-check clean

help:        ## what there is
	@grep -E '^[a-z-]+: .*##|^[a-z-]+:  *##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

build:       ## bin/sheaf, which needs nothing beside it
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/sheaf ./cmd/sheaf

demo: build  ## the main job on real data of this machine, checked byte by byte
	$(GO) run ./bench/demo -sheaf bin/sheaf

test: test-go test-python  ## every test, Go and Python, real mounts included

test-go:     ## Go tests with the race detector
	$(GO) test -count=1 -timeout 20m ./internal/backend/s3test # builds the S3 server that others test against, once
	$(GO) test $(TESTFLAGS) ./...

test-python: build $(VENV)/.ready  ## Python tests against a real cluster and mount
	cd python && SHEAF_BIN=$(abspath bin/sheaf) $(abspath $(VENV))/bin/python -m pytest -q

$(VENV)/.ready: python/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install -q --disable-pip-version-check -e 'python[test]'
	touch $@

$(VENV)/.deploy: deploy/tests/requirements.txt $(VENV)/.ready
	$(VENV)/bin/python -m pip install -q --disable-pip-version-check -r deploy/tests/requirements.txt
	touch $@

deploy-check: build $(VENV)/.deploy  ## units, manifest and alert rules: read by what will read them, started as they say
	cd deploy/tests && SHEAF_BIN=$(abspath bin/sheaf) $(abspath $(VENV))/bin/python -m pytest -q

lint: $(VENV)/.deploy  ## gofmt, vet, staticcheck, ruff, mypy
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	$(STATICCHECK) ./...
	cd python && $(abspath $(VENV))/bin/ruff check . && $(abspath $(VENV))/bin/ruff format --check . && $(abspath $(VENV))/bin/mypy
	cd deploy/tests && $(abspath $(VENV))/bin/ruff check . && \
	  $(abspath $(VENV))/bin/ruff format --check . && \
	  $(abspath $(VENV))/bin/mypy --config-file mypy.ini

fuzz:        ## each fuzz target for FUZZTIME
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "fuzz $$pkg $$f"; GO="$(GO)" .ci/fuzz $$pkg $$f $(FUZZTIME); \
	  done; done

bench: build ## the benchmarks; results in bench/results
	mkdir -p bench/results
	$(GO) run ./bench -sheaf bin/sheaf -o bench/results/$$(date +%Y-%m-%d).json

clean:       ## what was built
	rm -rf bin $(VENV) python/dist
