# Each target is a line or two that one could have typed. "make help" lists them.

# The same for all that is compiled here, so that each package is compiled once: programs, tests and checks
# alike, in whatever folder. "go test" leaves vet to "make lint", and links without symbols by itself.
export CGO_ENABLED = 0
export GOFLAGS    := $(strip $(GOFLAGS) -trimpath -vet=off)

# Kalypso's cases with their expected output lie beside the repository where they are available.
export WHERRY_CASES ?= $(realpath ../shared/cases)

GO   ?= go
TOOL  = $(GO) tool -modfile=tools/go.mod
LDFLAGS = -s -w

# What the end-to-end tests run beside wherry is built once for each set of versions and compilers: a folder
# for each module in e2e/tools, so that a change of one builds no other again.
KUBE      = v1.36.3
STAMP     = $(foreach p,k8s.io/component-base/version k8s.io/client-go/pkg/version,-X $(p).gitVersion=$(KUBE) -X $(p).gitMajor=1 -X $(p).gitMinor=36)
E2E_CACHE = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/wherry-e2e
# The cosign that reaches PKCS#11 tokens needs a C compiler. Without cgo in the packages net and os/user, what it
# shares with the other programs is compiled once all the same.
COSIGN_TAGS = -tags pkcs11key,netgo,osusergo
E2E_KEYS := $(shell for module in e2e/tools/*/; do name=$$(basename $$module); printf '%s/' $$name; \
	{ cat $$module/go.mod $$module/go.sum $$(find $$module -name '*.go'); echo "$(STAMP)"; $(GO) version; \
	if [ $$name = cosign ]; then echo "$(COSIGN_TAGS)"; fi; } | git hash-object --stdin; done)
E2E_BINS  = $(E2E_KEYS:%=$(E2E_CACHE)/%/bin)
ARGO      = $(shell awk '$$1 == "github.com/argoproj/argo-cd/v3" { print substr($$2, 2) }' e2e/tools/argo/go.mod)
E2E_DEBS  = containerd runc containernetworking-plugins
MACHINE  := $(shell { cat /etc/os-release 2>/dev/null; uname -m; } | git hash-object --stdin)
E2E_DEB  := $(E2E_CACHE)/debian/$(MACHINE)-ctr/bin
# Argo CD keeps its cache in a redis, which is taken from Debian where this machine has none.
REDIS_DEBS = redis-server redis-tools libatomic1 libjemalloc2 liblzf1
E2E_REDIS := $(if $(shell command -v redis-server),,$(E2E_CACHE)/redis/$(MACHINE)/bin)
# So is a PKCS#11 token in software, which keeps a key that signs.
HSM_DEBS = softhsm2 libsofthsm2
E2E_HSM  := $(if $(shell command -v softhsm2-util),,$(E2E_CACHE)/softhsm/$(MACHINE)/bin)
# And so is skopeo, which copies what others publish.
E2E_SKOPEO := $(if $(shell command -v skopeo),,$(E2E_CACHE)/skopeo/$(MACHINE)/bin)
# And mtools, which fills and reads a FAT32 file system in a file, without the kernel.
E2E_MTOOLS := $(if $(shell command -v mformat),,$(E2E_CACHE)/mtools/$(MACHINE)/bin)
EMPTY    :=
E2E_TOOLS = $(subst $(EMPTY) $(EMPTY),:,$(strip $(E2E_BINS) $(E2E_DEB) $(E2E_REDIS) $(E2E_HSM) $(E2E_SKOPEO) $(E2E_MTOOLS)))
# On a cluster that was given, the tests run these tools of their own all the same.
E2E_GIVEN = $(filter-out $(E2E_CACHE)/etcd/% $(E2E_CACHE)/kube/%,$(E2E_BINS)) $(E2E_REDIS) $(E2E_HSM) $(E2E_SKOPEO) $(E2E_MTOOLS)
# Pods that run take root on Debian, and make this machine a node, for a cluster that is started here. So do links
# between network namespaces.
# E2E_TAGS=e2e leaves them out.
COMMA    := ,
E2E_TAGS ?= $(if $(WHERRY_E2E_KUBECONFIG),e2e,e2e$(COMMA)pods)
E2E_PODS  = $(findstring pods,$(E2E_TAGS))
E2E_LEAVE = "make e2e E2E_TAGS=e2e" leaves the tests with real pods out
E2E_PACKAGES ?= ./e2e/... ./reconcilers/...
# These tests wait more than they compute: three packages at once, each with a cluster of its own, and four tests of one.
E2E_AT_ONCE ?= 3
E2E_TESTS   ?= 4
E2E_ENV   = WHERRY_E2E_TOOLS=$(E2E_TOOLS) WHERRY_E2E_PROGRAMS=$(CURDIR)/bin WHERRY_E2E_ARTIFACTS=$(CURDIR)/dist/e2e
IMAGE_PLATFORMS ?= linux/amd64 linux/arm64
IMAGE_TAG ?= dev
VERSION  ?= v0.0.0-dev
COSIGN   ?= cosign
FUZZTIME ?= 1m
SOAK     ?= 1h
VULNDB   ?= https://vuln.go.dev

# Each target that "make help" lists, and one that it does not.
.PHONY: e2e-machine $(shell awk -F: '/^[a-z0-9-]+:.*## / { print $$1 }' Makefile)

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/wherry and bin/wherry-agent
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

# Tests write many small files and sync each. They do so in memory where it is large enough and may hold programs;
# the compiler keeps its own folder. That is said in a file, with what the user's has: from the environment, tests would
# take GOTMPDIR for their own files.
TEST_ENV := dist/test.goenv
TEST_TMP := $(shell test -w /dev/shm && ! grep -q '^[^ ]* /dev/shm [^ ]* [^ ]*noexec' /proc/mounts && \
	df -Pm /dev/shm | awk 'END { if ($$4 >= 2048) print "env -u GOTMPDIR GOENV=$(CURDIR)/$(TEST_ENV) TMPDIR=/dev/shm" }')

test: ## all tests that need no network, cluster or container runtime
	@mkdir -p $(dir $(TEST_ENV)); { grep -v '^GOTMPDIR=' "$$($(GO) env GOENV)" 2>/dev/null; echo 'GOTMPDIR=$(or $(GOTMPDIR),$(TMPDIR),/tmp)'; } >$(TEST_ENV)
	$(TEST_TMP) $(GO) test -timeout 30m $(if $(SKIP),-skip '$(SKIP)') ./...
	$(GO) test -C tools ./...

scripts: ## the scripts of cmd/wherry with a process for each command; make test runs them in worker processes
	$(TEST_TMP) $(GO) test -timeout 30m ./cmd/wherry -run '^Test(Comment)?Scripts$$' -args -worker=false

# Two programs make the same bytes if both print the same digests. Their clock stands still, by a flag of the linker.
DIGESTS = dist/digests
digests: ## digests of what a program makes of all examples, cases and scripts; PROGRAM=… is another one, such as dist/digests/wherry of another work tree
	@rm -rf $(DIGESTS).txt; mkdir -p $(DIGESTS)
	@$(GO) build -ldflags '$(LDFLAGS) -X github.com/wherry-dev/wherry/cmd/internal/cli.fixedTime=2026-01-01T00:00:00Z' -o $(DIGESTS)/ ./cmd/...
	@$(GO) test ./cmd/wherry -count=1 -run '^(TestDigests|TestScripts)$$' -args -program $(abspath $(or $(PROGRAM),$(DIGESTS)/wherry)) -digests $(CURDIR)/$(DIGESTS).txt >&2
	@cat $(DIGESTS).txt

lint: ## go vet, of what differs also for macOS and Windows, staticcheck, gofumpt, actionlint
	$(GO) vet -tags e2e,pods,zarf,helm ./...
	$(GO) vet ./reconcilers/zarf
	GOOS=darwin $(GO) vet ./bundle/child
	GOOS=windows $(GO) vet ./bundle/child
	$(GO) vet -C tools ./...
	$(GO) vet -C tools/oidc ./...
	$(GO) vet -C tools/browser ./...
	$(GO) vet -C tools/prometheus ./...
	$(GO) vet -C tools/nfpm ./...
	$(TOOL) staticcheck -tags e2e,pods,zarf,helm ./...
	$(TOOL) actionlint examples/ci/github/*.yml
	@out=$$($(TOOL) gofumpt -l .); test -z "$$out" || { echo "gofumpt would change:"; echo "$$out"; exit 1; }

lint-others: ## vet wherry for macOS and Windows, which compiles all that it links once for each
	GOOS=darwin $(GO) vet ./cmd/wherry
	GOOS=windows $(GO) vet ./cmd/wherry

vuln: ## known vulnerabilities in what wherry links; says so where their database cannot be reached
	@out=$$($(TOOL) govulncheck -db $(VULNDB) ./... 2>&1); code=$$?; echo "$$out"; \
	case "$$code $$out" in \
	0*) ;; \
	*"fetching vulnerabilities"*) echo "vuln: NOT CHECKED: the vulnerability database cannot be reached from here" ;; \
	*) exit 1 ;; \
	esac

e2e: $(if $(E2E_PODS),e2e-machine) build $(if $(WHERRY_E2E_KUBECONFIG),$(E2E_GIVEN),e2e-tools) $(if $(E2E_PODS),$(E2E_DEB)) ## the tests on a real API server
	$(E2E_ENV) $(GO) test -tags $(E2E_TAGS) -count=1 -p $(E2E_AT_ONCE) -parallel $(E2E_TESTS) -timeout 90m $(if $(E2E_RUN),-run '$(E2E_RUN)') $(E2E_PACKAGES)

# Agents are killed, and as root also lose their power, on file systems of their own; "make test" has 100 of the kills.
KILL = $(GO) test ./agent -tags $(3) -count=1 -timeout 3h -v -run 'AKilledAgent|LosesItsPower|ADiskThat' -args -kills $(1) -power-cuts $(2)
e2e-kills: $(if $(E2E_PODS),e2e-machine) ## agents killed 1,000 times and, as root, 250 power cuts
	$(call KILL,1000,250,$(E2E_TAGS))

KILLS ?= 10000
HUB_KILLS ?= 200
TEAMS ?= 5000

soak: build ## every place of each sweep (tests take a sample otherwise), also of promotions; hostile teams published beside others; hostile text in each field of a platform; hubs killed HUB_KILLS times under load; agents killed KILLS times, and as root as many tenths of power cuts; docs/reliability.md has how long it takes
	WHERRY_SWEEP=1 $(GO) test -timeout 4h ./bundle/oci ./agent ./agent/carry ./agent/outbox ./agent/relay ./hub/store/... ./publisher/... ./scheduler
	WHERRY_SWEEP=1 WHERRY_E2E_PROGRAMS=$(CURDIR)/bin $(GO) test -tags e2e -timeout 2h ./e2e/promotion
	$(GO) test -timeout 4h ./publisher -run '^TestAHostileTeamChangesNothingForOthers$$' -isolation.seeds $(TEAMS)
	$(GO) test -timeout 4h ./publisher/embed -run '^TestAHostileTeamsContentHoldsItselfAlone$$' -isolation.seeds 500
	$(GO) test -timeout 4h ./cmd/wherry -run '^TestNoFieldOfAPlatformCommandsATerminal$$' -every-field
	$(GO) test -timeout 4h ./cmd/wherry -run '^TestAKilledHub' -hub-kills $(HUB_KILLS)
	$(call KILL,$(KILLS),$$(( $(KILLS) / 10 )),e2e$(if $(filter 0,$(shell id -u)),$(COMMA)pods))

# Said at once, and not after all has been built.
e2e-machine:
	@why=; if [ "$$(uname)" != Linux ]; then why="this is $$(uname)"; \
	elif [ "$$(id -u)" != 0 ]; then why="you are not root"; \
	elif [ ! -d $(E2E_DEB) ] && ! command -v apt-get >/dev/null; then why="apt-get is missing"; fi; \
	test -z "$$why" || { echo 'e2e: real pods take root on Debian, and' "$$why"': $(E2E_LEAVE)' >&2; exit 1; }

e2e-tools: $(E2E_BINS) $(E2E_REDIS) $(E2E_HSM) $(E2E_SKOPEO) $(E2E_MTOOLS) ## etcd, kube-apiserver and the other programs of these tests; some minutes, once
	@echo $(E2E_TOOLS)

# Built beside its place and moved there at the end, so that a build that was cut short is not taken for one.
# The folder crds has the resource definitions of a module that brings some.
$(E2E_BINS):
	@mkdir -p $(@D); tmp=$$(mktemp -d $(@D)/tmp.XXXXXX) && module=e2e/tools/$(notdir $(patsubst %/,%,$(dir $(@D)))) && set -x && \
	$(if $(findstring /cosign/,$@),CGO_ENABLED=1) $(GO) build -C $$module $(if $(findstring /cosign/,$@),$(COSIGN_TAGS)) -ldflags '$(LDFLAGS) $(STAMP) -X github.com/argoproj/argo-cd/v3/common.version=$(ARGO)' -o $$tmp/ tool && \
	if [ -e $$tmp/server ]; then mv $$tmp/server $$tmp/etcd; fi && \
	if [ -e $$tmp/cmd ]; then mv $$tmp/cmd $$tmp/argocd; fi && \
	for dir in $$($(GO) list -C $$module -f '{{.Module.Dir}}/config/crd/bases {{.Module.Dir}}/manifests/crds' tool); do \
		if [ -d $$dir ]; then mkdir -p $$tmp/crds && cp $$dir/*.yaml $$tmp/crds/ || exit 1; fi; \
	done && rm -f $$tmp/crds/kustomization.yaml && mv $$tmp $@ || { rm -rf $$tmp; exit 1; }

# Unpacked and not installed: the machine is left as it is.
$(E2E_DEB):
	@mkdir -p $(@D); tmp=$$(mktemp -d $(@D)/tmp.XXXXXX) && set -x && \
	( cd $$tmp && { apt-get download -q $(E2E_DEBS) || { apt-get update -q && apt-get download -q $(E2E_DEBS); }; } && \
	for deb in *.deb; do dpkg -x $$deb . || exit 1; done && mkdir -p bin/cni && \
	mv usr/bin/containerd usr/bin/containerd-shim-runc-v2 usr/bin/ctr usr/sbin/runc bin/ && \
	mv usr/lib/cni/ptp usr/lib/cni/host-local usr/lib/cni/loopback bin/cni/ && mv bin $@ ); code=$$?; rm -rf $$tmp; set +x; \
	test $$code = 0 || echo 'e2e: $(E2E_DEBS) could not be had from apt-get: $(E2E_LEAVE)' >&2; exit $$code

# Their libraries stay beside them. Without apt-get they have to be installed, and the tests say so.
$(E2E_REDIS): DEBS = $(REDIS_DEBS)
$(E2E_HSM): DEBS = $(HSM_DEBS)
$(E2E_REDIS) $(E2E_HSM):
	@if ! command -v apt-get >/dev/null; then echo 'e2e: the tests need $(firstword $(DEBS)), and there is no apt-get to have it from: install it' >&2; exit 1; fi; \
	mkdir -p $(@D); tmp=$$(mktemp -d $(@D)/tmp.XXXXXX) && set -x && \
	( cd $$tmp && { apt-get download -q $(DEBS) || { apt-get update -q && apt-get download -q $(DEBS); }; } && \
	for deb in *.deb; do dpkg -x $$deb . || exit 1; done && mkdir -p bin/lib && \
	cp usr/bin/* bin/ && find usr/lib/*-linux-* -name '*.so*' -exec cp -P -t bin/lib {} + && mv bin $@ ); code=$$?; rm -rf $$tmp; set +x; \
	test $$code = 0 || echo 'e2e: $(DEBS) could not be had from apt-get: install $(firstword $(DEBS))' >&2; exit $$code

# apt-get finds out which libraries are missing: their names differ from release to release.
$(E2E_SKOPEO):
	@if ! command -v apt-get >/dev/null; then echo 'e2e: the tests of copies need skopeo, and there is no apt-get to have it from: install it' >&2; exit 1; fi; \
	mkdir -p $(@D); tmp=$$(mktemp -d $(@D)/tmp.XXXXXX) && mkdir $$tmp/partial && set -x && \
	get="apt-get install -qy --no-install-recommends --download-only -o Debug::NoLocking=1 -o Dir::Cache::archives=$$tmp skopeo" && \
	( cd $$tmp && { $$get || { apt-get update -q && $$get; }; } && \
	for deb in *.deb; do dpkg -x $$deb . || exit 1; done && mkdir -p bin/lib && \
	cp usr/bin/skopeo bin/ && find usr/lib -name '*.so.*' -exec cp -P -t bin/lib {} + && mv bin $@ ); code=$$?; rm -rf $$tmp; set +x; \
	test $$code = 0 || echo 'e2e: skopeo could not be had from apt-get: install it' >&2; exit $$code

$(E2E_MTOOLS):
	@if ! command -v apt-get >/dev/null; then echo 'e2e: the test of FAT32 needs mtools, and there is no apt-get to have it from: install it' >&2; exit 1; fi; \
	mkdir -p $(@D); tmp=$$(mktemp -d $(@D)/tmp.XXXXXX) && set -x && \
	( cd $$tmp && { apt-get download -q mtools || { apt-get update -q && apt-get download -q mtools; }; } && \
	dpkg -x mtools*.deb . && mv usr/bin $@ ); code=$$?; rm -rf $$tmp; set +x; \
	test $$code = 0 || echo 'e2e: mtools could not be had from apt-get: install it' >&2; exit $$code

e2e-up: build e2e-tools ## that API server and a registry by themselves, until Ctrl-C; with CMD='…' while the command runs
	@$(E2E_ENV) $(GO) run ./e2e/harness/cmd/up $(CMD)

# One test each of: publish and apply, apply again, prune, refuse. All others have run on the cluster of "make e2e".
E2E_SMOKE = TestWhatIsPublishedReachesTheCluster|TestApplyingTwiceChangesNothing|TestAPrunedAssignment|TestRefusedWhile

e2e-external: build $(if $(WHERRY_E2E_KUBECONFIG),,e2e-tools) ## a few of these tests on a cluster and a registry that another process has started
	$(E2E_ENV) $(GO) run ./e2e/harness/cmd/up $(MAKE) e2e E2E_PACKAGES=./e2e E2E_RUN='$(E2E_SMOKE)'

e2e-kind: ## the same tests on kind and a registry in containers; root on Debian needs no container engine for it
	@GO="$(GO)" deploy/kind/run $(MAKE) e2e E2E_PACKAGES=./e2e E2E_RUN='$(E2E_SMOKE)'

e2e-zarf: build e2e-tools ## the suite of the adapter zarf with a real one, ZARF=PATH; what it says is kept in dist/e2e
	@test -x "$(ZARF)" || { echo 'e2e-zarf: name the program, as ZARF=/usr/local/bin/zarf' >&2; exit 2; }
	$(E2E_ENV) WHERRY_E2E_ZARF=$(abspath $(ZARF)) WHERRY_CONFORMANCE=write \
		$(GO) test -tags e2e,zarf -count=1 -timeout 60m -run '^(TestConformance|TestARealZarf.*)$$' -v ./reconcilers/zarf
	@cat dist/e2e/zarf-conformance.txt

e2e-helm-controller: build e2e-tools ## HelmReleases with a real one, HELM_CONTROLLER=PATH with crds/ beside it and its HELM_VERSION
	@test -x "$(HELM_CONTROLLER)" -a -n "$(HELM_VERSION)" || { echo 'e2e-helm-controller: name the program, as HELM_CONTROLLER=/opt/flux/helm-controller HELM_VERSION=v1.6.3' >&2; exit 2; }
	$(E2E_ENV) WHERRY_E2E_TOOLS=$(E2E_TOOLS):$(abspath $(dir $(HELM_CONTROLLER))) WHERRY_E2E_HELM_CONTROLLER=$(abspath $(HELM_CONTROLLER)) \
		WHERRY_E2E_HELM_CONTROLLER_VERSION=$(HELM_VERSION) \
		$(GO) test -tags e2e,helm -count=1 -timeout 30m -run '^TestARealHelmController$$' -v ./reconcilers/flux
	@cat dist/e2e/helm-controller.txt

programs: ## the programs of IMAGE_PLATFORMS in dist/programs
	@set -e; for p in $(IMAGE_PLATFORMS); do \
		(set -x; GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build -ldflags '$(LDFLAGS)' -o dist/programs/$$p/ ./cmd/...); \
	done

# Of the commit that is checked out, without a clock.
CREATED = $(shell git log -1 --format=%cI)

image: programs ## the images wherry-agent and wherry as OCI layouts in dist/image, with SBOM and provenance; in a registry with IMAGE_PUSH=HOST/PREFIX; signed by cosign with IMAGE_KEY=FILE
	@set -e; for name in wherry-agent wherry; do \
		(set -x; $(GO) run -C tools ./image -name $$name -o $(CURDIR)/dist/image/$$name -tag $(IMAGE_TAG) $(IMAGE_FLAGS) \
		$(if $(IMAGE_PUSH),-push $(IMAGE_PUSH)/$$name:$(IMAGE_TAG)) $(if $(IMAGE_KEY),-key $(if $(findstring :,$(IMAGE_KEY)),$(IMAGE_KEY),$(abspath $(IMAGE_KEY))) -cosign $(COSIGN)) \
		-created $(CREATED) -revision "$$(git rev-parse HEAD)" -zoneinfo "$$($(GO) env GOROOT)/lib/time/zoneinfo.zip" \
		$(foreach p,$(IMAGE_PLATFORMS),$(p)=$(CURDIR)/dist/programs/$(p)/$$name)); \
	done

packages: build programs ## .deb and .rpm of wherry-agent and wherry-hub in dist/packages
	$(GO) run -C tools/nfpm . -o dist/packages -version $(VERSION) -created $(CREATED) \
		$(foreach p,$(IMAGE_PLATFORMS),$(notdir $(p))=dist/programs/$(p))

test-packages: ## the packages, installed, upgraded and removed on a small root; as root on Debian
	$(TEST_TMP) $(GO) test -C tools/nfpm ./...

# The same bytes for the same commit, but for the signatures and for newer packages of Debian's.
TAR = tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u+rw,go=rX
release: build ## all that a release of VERSION consists of, in dist/release: archives, packages, images, SBOMs and sums, which IMAGE_KEY=FILE signs
	@test $(VERSION) = v0.0.0-dev || bin/wherry version | grep -q "^$(VERSION)[[:space:]]" || \
		{ echo 'release: the programs are not of $(VERSION): check out its tag, without changes' >&2; exit 1; }
	rm -rf dist/release dist/packages dist/image
	$(MAKE) image packages IMAGE_TAG=$(VERSION) IMAGE_FLAGS='-refresh -sboms $(CURDIR)/dist/release'
	mv dist/packages/* dist/release/
	@set -e; for p in $(IMAGE_PLATFORMS); do \
		(set -x; $(TAR) -czf dist/release/wherry-$(VERSION)-$${p%/*}-$${p#*/}.tar.gz -C $(CURDIR)/dist/programs/$$p wherry wherry-agent -C $(CURDIR) LICENSE README.md); \
	done; for name in wherry-agent wherry; do \
		(set -x; $(TAR) -cf dist/release/$$name-$(VERSION).oci.tar -C dist/image/$$name .); \
	done
	cd dist/release && sha256sum * >SHA256SUMS
	$(if $(IMAGE_KEY),$(COSIGN) sign-blob --yes --tlog-upload=false --key $(IMAGE_KEY) --output-signature dist/release/SHA256SUMS.sig dist/release/SHA256SUMS)

release-check: lint-others ## what a release has to pass beside .ci/run: wherry for other systems, and the same release when it is made twice
	$(MAKE) release
	cp dist/release/SHA256SUMS dist/first.sums
	$(MAKE) release
	diff dist/first.sums dist/release/SHA256SUMS
	$(MAKE) arm64-check

# Debian's qemu-user runs programs for another processor. Ansible, which the example needs, stays this machine's.
QEMU ?= $(firstword $(shell command -v qemu-aarch64-static; command -v qemu-aarch64))
arm64-check: build programs ## the commands of examples/host by the programs for arm64, with qemu-user: publish, carry, apply; says so where it is missing
	@if [ -z "$(QEMU)" ]; then echo 'arm64-check: NOT RUN: install qemu-user, or name qemu-aarch64 as QEMU=PATH'; exit; fi; \
	set -e; rm -rf dist/arm64; mkdir -p dist/arm64/bin dist/arm64/examples; cp -R examples/host dist/arm64/examples/; cd dist/arm64; \
	for p in wherry wherry-agent; do printf '#!/bin/sh\nexec %s %s "$$@"\n' '$(abspath $(QEMU))' "$(CURDIR)/dist/programs/linux/arm64/$$p" >bin/$$p; chmod +x bin/$$p; done; \
	PATH="$$PWD/bin:$$PATH"; set -x; wherry version | grep linux/arm64; \
	eval "$$(sed -n '/^```sh$$/,/^```$$/{/^```/!p;}' examples/host/README.md)"; \
	wherry render examples/host/platform -e dev -o arm64; $(CURDIR)/bin/wherry render examples/host/platform -e dev -o here; diff -r arm64 here

bench: bench-render bench-authoring bench-agent bench-hub bench-ui bench-promotion bench-wire bench-embedded bench-airgap bench-hostile ## all figures of docs/benchmarks.md

bench-render: ## figures of rendering 1 000, 10 000 and 100 000 assignments; about a minute
	$(GO) test ./scheduler -run '^$$' -bench '^BenchmarkRender$$' -benchtime 3s

bench-authoring: build ## figures of lint, plan and publish of 100 000 assignments, with a registry on this machine; two minutes
	WHERRY_E2E_PROGRAMS=$(CURDIR)/bin $(GO) test ./cmd/wherry -run '^$$' -bench '^BenchmarkAuthoring' -benchtime 1x -timeout 20m

bench-hostile: ## time for the worst YAML of n and 4n bytes; some seconds
	$(GO) test ./bundle/yamlvalues ./bundle/manifests -run '^$$' -bench '^BenchmarkHostile' -benchtime 3x

bench-airgap: build ## figures of site packages with 2 GiB of images, beside cp and sync of the same bytes; on Linux, with 10 GiB free in TMPDIR, some minutes
	WHERRY_E2E_PROGRAMS=$(CURDIR)/bin $(GO) test ./cmd/wherry -run '^$$' -bench '^BenchmarkAirgap$$' -benchtime 1x -timeout 20m

bench-hub: build ## figures of a hub that takes reports and answers with a million deployments stored; some minutes; BENCH_HUB=ingest-durable is one of them, BENCH_HUB_FLAGS=-hub-full drains 100 000 agents
	WHERRY_E2E_PROGRAMS=$(CURDIR)/bin $(GO) test ./cmd/wherry -run '^$$' -bench '^BenchmarkHub$$/$(BENCH_HUB)' -benchtime 1x -timeout 60m $(if $(BENCH_HUB_FLAGS),-args $(BENCH_HUB_FLAGS))

# Of what the end-to-end tests run, only these stand beside the agent.
BENCH_PEERS = $(filter $(foreach peer,$(if $(WHERRY_E2E_KUBECONFIG),,etcd kube) flux-source flux-kustomize,$(E2E_CACHE)/$(peer)/%),$(E2E_BINS))

bench-ui: build ## figures of the pages of a hub with 100 000 clusters and a million deployments, and of 500 streams of events; some minutes
	WHERRY_E2E_PROGRAMS=$(CURDIR)/bin $(GO) test ./cmd/wherry -run '^$$' -bench '^BenchmarkUI$$' -benchtime 1x -timeout 90m

# A benchmark of each of gates, undoing and the simulation, wherever it is: of what runs as it is deployed.
BENCH_PROMOTION ?= GateCheck.*|ContentGate.*|Undo.*|Simulate
bench-promotion: build ## figures of gates with 100 000 clusters in a hub and 1 000 in a registry, of undo with 316 cluster types, and of 1 000 simulated agents; some minutes; BENCH_PROMOTION='Simulate(Full)?' has 10 000 too
	WHERRY_E2E_PROGRAMS=$(CURDIR)/bin $(GO) test ./cmd/wherry ./hub/api ./rollout/facts ./rollout/undo ./e2e/load/simulation -run '^$$' -bench '^Benchmark($(BENCH_PROMOTION))$$' -benchtime 1x -p 1 -timeout 60m

bench-agent: build $(BENCH_PEERS) ## figures of the agent and of Flux, with the same 400 objects on an API server; four minutes once its tools are built
	$(E2E_ENV) $(GO) test -tags e2e ./e2e -run '^$$' -bench '^BenchmarkAgent$$' -benchtime 1x -timeout 12m

bench-soak: build $(BENCH_PEERS) ## memory of an agent over SOAK, with releases every 5 seconds, outages, refusals and failures
	WHERRY_E2E_SOAK=$(SOAK) $(E2E_ENV) $(GO) test -tags e2e ./e2e -run '^$$' -bench '^BenchmarkSoak$$' -benchtime 1x -timeout 0

bench-embedded: build $(BENCH_PEERS) ## figures of bundles that contain what workloads are made of, and of Flux that pulls the same from git; three minutes once its tools are built
	$(GO) test ./agent/serve -run '^$$' -bench '^BenchmarkServeBlob$$' -benchtime 1x
	WHERRY_E2E_PROGRAMS=$(CURDIR)/bin $(GO) test ./cmd/wherry -run '^$$' -bench '^BenchmarkEmbeddedPublish$$' -benchtime 1x
	$(E2E_ENV) $(GO) test -tags e2e ./e2e -run '^$$' -bench '^BenchmarkEmbedded$$' -benchtime 1x -timeout 12m

bench-install: build e2e-machine e2e-tools $(E2E_DEB) ## time from the chart of hub and agent to the first compliant assignment, with real pods; a minute once its tools are built
	$(E2E_ENV) $(GO) test -tags e2e,pods ./e2e -count=1 -run '^TestTheChartsAreInstalledAndUpgraded$$' -v | grep '^figure\|^---'

bench-wire: build $(BENCH_PEERS) ## figures of what agent and Flux send and receive over TLS; a minute once its tools are built
	$(E2E_ENV) $(GO) test -tags e2e ./e2e -run '^$$' -bench '^BenchmarkWire$$' -benchtime 1x -timeout 12m

fuzz: ## each fuzz test for FUZZTIME
	@for file in $$(grep -rl --include='*_test.go' '^func Fuzz' .); do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' $$file); do \
			$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 2s ./$$(dirname $$file) || exit 1; \
		done; \
	done

docs: ## the documentation as a web site in dist/docs, for a browser without a network; a hub has the same under /docs/
	rm -rf dist/docs
	$(GO) run ./docs/site/write dist/docs

demo: ## the whole line on this machine, without cluster or network
	$(GO) run ./cmd/wherry demo

prometheus-check: build ## alert rules and dashboards, by Prometheus' own library, on the metrics of programs that run; compiles that library once
	WHERRY_E2E_PROGRAMS=$(CURDIR)/bin $(GO) test -C tools/prometheus -count=1 ./...

docs-media: build ## for the documentation: a recording of a terminal and, in Chromium, pictures of the hub's pages and the operator card as PDF
	mkdir -p docs/media
	$(GO) run -C tools ./terminal $(CURDIR)/bin >docs/media/terminal.svg
	WHERRY_E2E_PROGRAMS=$(CURDIR)/bin $(GO) test -C tools/browser -count=1 -run '^(TestPicturesForTheDocumentation|TestTheOperatorCardIsOneSheet)$$' . -args -media $(CURDIR)/docs/media

screens: build ## pictures of each page in dist/screens, of fleets of several sizes, light, dark, narrow and wide, to look at; SCREENS_HUB=URL adds a hub that answers without a token
	rm -rf dist/screens && mkdir -p dist/screens
	WHERRY_E2E_PROGRAMS=$(CURDIR)/bin $(GO) test -C tools/browser -count=1 -run '^TestScreens$$' . -args -screens $(CURDIR)/dist/screens -screens-hub "$(SCREENS_HUB)"

login-check: build ## a person signs in at a hub with an OpenID Connect provider of other people
	WHERRY_E2E_PROGRAMS=$(CURDIR)/bin $(GO) test -C tools/oidc -count=1 ./...

browser-check: build ## the pages of a hub in Chromium: people's questions, each link, WCAG by axe, hostile text; two minutes
	WHERRY_E2E_PROGRAMS=$(CURDIR)/bin $(GO) test -C tools/browser -count=1 -timeout 30m ./...

install-check: ## "go install …@latest" from a module proxy that holds this checkout
	$(GO) run -C tools ./installcheck $(CURDIR)

clean: ## remove what was built here; the cache of the end-to-end tools stays
	rm -rf bin dist
