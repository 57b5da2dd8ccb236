# Everything that is run here is a target here: `make help` lists them.
BIN      := $(CURDIR)/bin
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -X main.version=$(VERSION)
PROGRAMS := raven raven-sim
DRIVERS  := $(notdir $(wildcard plugins/raven-driver-*))
ARGS     ?=

.DEFAULT_GOAL := help
.PHONY: help build run test lint generate check bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build the programs and the drivers into bin/
	@mkdir -p $(BIN)
	go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ $(PROGRAMS:%=./cmd/%) $(DRIVERS:%=./plugins/%)

run: build ## Show it: simulated cluster and cloud, the real raven, a live view; Ctrl-C ends it
	@$(BIN)/raven-sim demo --raven $(BIN)/raven $(ARGS)

test: ## Run the tests with the race detector; ARGS='-run X ./service/...' for some of them
	.ci/test $(ARGS)

lint: ## Run the linters, and see that the contract between core and drivers breaks nobody
	.ci/lint/run
	.ci/proto lint
	.ci/proto breaking

generate: build ## Make what is made by tools: the contract's code and kuryr.conf.sample
	.ci/proto generate
	$(BIN)/raven config sample > kuryr.conf.sample

check: build ## Fail when something that tools make is stale, or a file is not formatted or tidy
	.ci/check

bench: build ## Measure speed and size on the simulations, and print a report
	$(BIN)/raven-sim bench --raven $(BIN)/raven $(ARGS)

clean: ## Remove what was built
	rm -rf $(BIN)
