# SPDX-License-Identifier: Apache-2.0
# Everything that is run here is a target here: `make help` lists them.
BIN      := $(CURDIR)/bin
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LINK     ?=
LDFLAGS  := $(LINK) -X main.version=$(VERSION)
PROGRAMS := raven raven-cni raven-sim
PLUGINS  := $(notdir $(wildcard plugins/raven-driver-*))
# The drivers of `make run`.
DRIVERS  ?= namespace,pod,lbaas
ARGS     ?=
FUZZ     ?= 30s
TARGET   ?=
N        ?= 10
# The packages whose tests have a short form.
CAMPAIGNS = $(shell grep -rl --include='*_test.go' '^func TestCampaign' . | xargs dirname | sort -u)
E2E      ?=
FOCUS    ?=
SKIP     ?=
EVERY    ?= 1
E2E_DIR  ?= /tmp/raven-e2e
# Where it is installed: below DESTDIR, which is for packagers.
DESTDIR  ?=
PREFIX   ?= /usr/local
LIBEXEC  := $(DESTDIR)$(PREFIX)/libexec/raven
# Documents lie as in the repository, so that links between them lead somewhere.
DOC      := $(DESTDIR)$(PREFIX)/share/doc/raven
UNITS    := $(DESTDIR)$(PREFIX)/lib/systemd/system
ARCHES   ?=

.DEFAULT_GOAL := help
.PHONY: help build examples charts install install-node uninstall manuals package release dependencies run web test-web web-screenshots test test-long test-stress fuzz lint generate check bench clean e2e e2e-full e2e-up e2e-test e2e-conformance e2e-cyclonus e2e-systemd e2e-down e2e-able e2e-command

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build the programs and the drivers into bin/
	@mkdir -p $(BIN)
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ $(PROGRAMS:%=./cmd/%) $(PLUGINS:%=./plugins/%)

install: ## Install what `make build` has built, with its unit and documents; PREFIX=/usr/local DESTDIR=
	@test -x $(BIN)/raven || { echo "there is no $(BIN)/raven: run make build first" >&2; exit 1; }
	install -d $(LIBEXEC) $(DESTDIR)$(PREFIX)/bin
	install -m 0755 $(BIN)/raven $(PLUGINS:%=$(BIN)/%) $(LIBEXEC)/
	ln -sfn ../libexec/raven/raven $(DESTDIR)$(PREFIX)/bin/raven
	install -d $(UNITS)
	sed 's|^ExecStart=/usr/bin/raven |ExecStart=$(PREFIX)/bin/raven |' etc/raven.service > $(UNITS)/raven.service
	chmod 0644 $(UNITS)/raven.service
	install -D -m 0644 etc/sysusers.d/raven.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/raven.conf
	install -D -m 0644 etc/tmpfiles.d/raven.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/raven.conf
	install -D -m 0644 etc/logrotate.d/raven $(DESTDIR)/etc/logrotate.d/raven
	test -e $(DESTDIR)/etc/kuryr/kuryr.conf || install -D -m 0640 kuryr.conf.sample $(DESTDIR)/etc/kuryr/kuryr.conf
	install -d $(DOC)/docs/drivers $(DOC)/docs/adr $(DOC)/docs/images $(DOC)/etc/kustomize $(DOC)/etc/prometheus $(DOC)/etc/grafana
	install -m 0644 README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE kuryr.conf.sample $(DOC)/
	install -m 0644 $(wildcard docs/*.md) $(DOC)/docs/
	install -m 0644 $(wildcard docs/images/*.png) $(DOC)/docs/images/
	install -m 0644 $(wildcard docs/drivers/*.md) $(DOC)/docs/drivers/
	install -m 0644 $(wildcard docs/adr/*.md) $(DOC)/docs/adr/
	install -m 0644 $(wildcard etc/kustomize/*.yaml) $(DOC)/etc/kustomize/
	install -d $(DOC)/etc/helm && cp -r --no-preserve=mode,ownership etc/helm/raven $(DOC)/etc/helm/
	install -m 0644 $(wildcard etc/prometheus/*.yaml) $(DOC)/etc/prometheus/
	install -m 0644 etc/grafana/raven.json $(DOC)/etc/grafana/

install-node: ## Install what a node needs beside that: the CNI plugin, the unit of its daemon and its configuration
	@test -x $(BIN)/raven-cni || { echo "there is no $(BIN)/raven-cni: run make build first" >&2; exit 1; }
	install -d $(LIBEXEC) $(UNITS)
	install -m 0755 $(BIN)/raven-cni $(LIBEXEC)/
	sed 's|^ExecStart=/usr/bin/raven |ExecStart=$(PREFIX)/bin/raven |' etc/raven-node.service > $(UNITS)/raven-node.service
	chmod 0644 $(UNITS)/raven-node.service
	test -e $(DESTDIR)/etc/kuryr/raven-node.conf || install -D -m 0640 etc/raven-node.conf $(DESTDIR)/etc/kuryr/raven-node.conf
	install -D -m 0644 docs/cni.md $(DESTDIR)$(PREFIX)/share/doc/raven-node/cni.md
	install -m 0644 docs/nodes.md etc/raven-node.conf $(DESTDIR)$(PREFIX)/share/doc/raven-node/

uninstall: ## Remove what `make install` has installed, but the configuration
	rm -rf $(LIBEXEC) $(DESTDIR)$(PREFIX)/share/doc/raven $(DESTDIR)$(PREFIX)/share/doc/raven-node
	rm -f $(DESTDIR)$(PREFIX)/bin/raven $(UNITS)/raven.service $(UNITS)/raven-node.service $(DESTDIR)/etc/logrotate.d/raven
	rm -f $(DESTDIR)$(PREFIX)/lib/sysusers.d/raven.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/raven.conf

manuals: ## Make the manual pages and the completions of shells in bin/manuals
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} GOOS= GOARCH= go run -tags man ./cmd/raven man $(BIN)/manuals

package: ## Make the Debian packages raven and raven-node and an OCI image layout in dist/; ARCHES='amd64 arm64' for several
	.ci/package/run $(VERSION) $(ARCHES)

release: ## Make all of a release in dist/release: packages, image, chart, SBOM, checksums; ARGS=--check makes it twice and compares
	ARCHES="$(ARCHES)" .ci/release/run $(ARGS) $(VERSION)

dependencies: build ## List the licenses of what the programs are made of; fail on one that is not allowed, and on a known vulnerability
	.ci/dependencies

examples: build ## Build, test and run the drivers of examples/, and follow docs/writing-a-driver.md to the letter; Python with grpcio
	.ci/examples

charts: ## Lint and render the Helm chart and the kustomize base with Helm's and kustomize's own code
	cd test/charts && go vet ./... && go test $(ARGS) ./...

run: build ## Show it: simulated cluster and cloud, the real raven, a live view; Ctrl-C ends it; DRIVERS=namespace,pod,kubeproxy
	@$(BIN)/raven-sim demo --raven $(BIN)/raven --drivers $(DRIVERS) $(ARGS)

test: ## Run the tests with the race detector, but the campaigns; ARGS='-run X ./service/...' for some of them
	.ci/test -short $(ARGS)

test-long: ## Run the campaigns: tests with hundreds of starts, kills and restarts
	.ci/test -run '^TestCampaign' $(ARGS) $(CAMPAIGNS)

test-stress: ## Build the tests of `make test` once, run them N times beside a busy loop for each processor, and count the failures; N=10
	.ci/test-stress $(N)

fuzz: ## Run each fuzz target for FUZZ=30s, one after the other; TARGET=FuzzEncode for one of them
	.ci/fuzz $(FUZZ) $(TARGET)

lint: ## Run the linters, and check that the contract between core and drivers breaks no driver
	.ci/lint/run
	.ci/proto lint
	.ci/proto breaking

generate: build ## Make what is made by tools: the contract's code, kuryr.conf.sample and the chart's rules
	.ci/proto generate
	$(BIN)/raven config sample > kuryr.conf.sample
	RAVEN_UPDATE=1 go test ./test/system -run '^TestChartRules$$'
	go test ./service/daemon -run '^TestTypeScript$$' -update

web: ## Build the web page from web/ into service/web/dist; Node.js 20 or later with npm
	.ci/web build

test-web: build ## Test the web page in a real Chromium, against the simulations; Debian's chromium, and make web before
	cd test/web && go test -count=1 $(ARGS) ./...

web-screenshots: build ## Make the screenshots of docs/web.md
	@mkdir -p docs/images
	cd test/web && RAVEN_WEB_SCREENSHOTS=$(CURDIR)/docs/images go test -count=1 -run '^TestPage$$' ./...

check: build ## Fail when something that tools make is stale, or a file is not formatted or tidy
	.ci/check

bench: build ## Measure speed and size on the simulations, and print a report
	$(BIN)/raven-sim bench --raven $(BIN)/raven $(ARGS)

e2e: e2e-able build package ## Prove it on real servers: a stack up, the scenarios, a table, down; E2E='Restart.*' for some; Debian 12, root
	$(BIN)/raven-e2e -dir $(E2E_DIR) run '$(E2E)'

e2e-full: e2e-able build package ## The same in the sizes of a night
	$(BIN)/raven-e2e -dir $(E2E_DIR) -full run '$(E2E)'

e2e-conformance: e2e-able build package ## Run upstream's network conformance tests on two real nodes with Raven; FOCUS=network for all that can run here, FOCUS=, SKIP= for others, NETWORK=dual for both IP versions, PAGE=docs/conformance.md for a page
	RAVEN_E2E_FOCUS='$(FOCUS)' RAVEN_E2E_SKIP='$(SKIP)' RAVEN_E2E_NETWORK='$(NETWORK)' RAVEN_E2E_PAGE='$(abspath $(PAGE))' $(BIN)/raven-e2e -dir $(E2E_DIR) run '^TestConformance$$'

e2e-cyclonus: e2e-able build package ## Run cyclonus' generated cases of NetworkPolicies with packets, by pod addresses and by clusterIPs; EVERY=20 for each 20th, PAGE=docs/cyclonus.md for a page
	RAVEN_E2E_EVERY='$(EVERY)' RAVEN_E2E_PAGE='$(if $(PAGE),$(abspath $(PAGE)))' $(BIN)/raven-e2e -dir $(E2E_DIR) run '^TestCyclonus$$'

e2e-up: e2e-command ## Bring up the stack alone and keep it, to explore it; E2E_DIR=/tmp/other for another
	$(BIN)/raven-e2e -dir $(E2E_DIR) up

e2e-test: build package e2e-command ## Run scenarios on the stack that stands
	$(BIN)/raven-e2e -dir $(E2E_DIR) test '$(E2E)'

e2e-systemd: package ## Run only what needs no stack: the Debian package on a real systemd; root
	go test -tags=e2e -count=1 -v ./test/e2e/systemd

e2e-down: e2e-command ## Take the stack down; its logs stay
	$(BIN)/raven-e2e -dir $(E2E_DIR) down

# Said before the minutes of what follows.
e2e-able: e2e-command
	@$(BIN)/raven-e2e able

e2e-command:
	@mkdir -p $(BIN)
	@go build -trimpath -o $(BIN)/ ./test/e2e/cmd/raven-e2e

clean: ## Remove what was built
	rm -rf $(BIN) dist
