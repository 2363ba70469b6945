PYTHON ?= python3
BIN := .venv/bin
comma := ,
DEMO_KUBECTL = $(BIN)/kubectl --kubeconfig "$$($(BIN)/divvy lab kubeconfig)"
DEMO_COLUMNS = 'NODE:.metadata.name,GPU:.status.allocatable.nvidia\.com/gpu,REPLICAS:.status.allocatable.nvidia\.com/gpu\.shared,3G:.status.allocatable.nvidia\.com/mig-3g\.20gb,2G:.status.allocatable.nvidia\.com/mig-2g\.10gb,1G:.status.allocatable.nvidia\.com/mig-1g\.5gb'

# No proxy is on the way to the lab's registry and API server: see docs/lab.md.
direct = $(if $(filter *,$(1)),*,$(if $(1),$(1)$(comma))10.123.0.1)
export NO_PROXY := $(call direct,$(or $(NO_PROXY),$(no_proxy)))
export no_proxy := $(if $(no_proxy),$(call direct,$(no_proxy)),$(NO_PROXY))

# Helm, with which `divvy up` deploys.
export PATH := $(CURDIR)/$(BIN):$(PATH)

# The image that verify has just pushed.
DEMO_WORKLOADS = $$(sed --quiet "s/^  image: //p" out/conformance/report.yaml)
DEMO_TRAINING = conformance/workloads/manifests/pod-training.yaml

# What waits for an agent, for a server of its own, or shares the lab, runs beside all others.
LANES = $(BIN)/python -m tests.lanes --first "pure and not second_lane" --first "pure and second_lane"
ALONE = not hardware and not pure and not shared_lab and not agent_process

.PHONY: setup setup-lab setup-all demo demo-pulumi demo-down test test-all unit lint bench field field-move hardware-kit dist docs clean

setup:             ## everything this machine needs, from a fresh Debian 12
	@$(PYTHON) -m lab.setup

setup-lab:         ## what the lab and the demo need of it
	@$(PYTHON) -m lab.setup lab

setup-all:         ## what make test-all needs: every Kubernetes of the lab, Kueue, arm64
	@$(PYTHON) -m lab.setup all

demo: setup-lab    ## from nothing to a proven cluster on this machine; no GPU needed
	@echo; echo "== 1. A real Kubernetes with six nodes; their GPUs are SIMULATED"
	@$(BIN)/divvy lab up
	@echo; echo "== 2. divvy preview -s lab: what would be made, what the nodes would then offer"
	@$(BIN)/divvy preview -s lab || [ $$? = 2 ]
	@echo; echo "== 3. Builds the agent's image, deploys it, waits for the nodes"
	@demo/deploy.sh
	@echo; echo "== 4. What a user of the cluster sees"
	@$(DEMO_KUBECTL) get nodes -o custom-columns=$(DEMO_COLUMNS)
	@echo; echo "== 5. divvy verify -s lab: does it hold? Small pods run on every kind of device"
	@$(BIN)/divvy verify -s lab
	@echo; echo "== 6. A framework (tinygrad) trains on a quarter of a T4: its memory, its nvidia-smi"
	@$(DEMO_KUBECTL) patch --local --filename=$(DEMO_TRAINING) --output=yaml --patch \
		'{"spec": {"nodeName": "gpu-t4", "containers": [{"name": "training", "image": "'$(DEMO_WORKLOADS)'"}]}}' \
		| $(DEMO_KUBECTL) replace --force --filename=- >/dev/null
	@$(DEMO_KUBECTL) wait pod/training --for=condition=Ready --timeout=60s >/dev/null
	@$(DEMO_KUBECTL) logs --follow training
	@$(DEMO_KUBECTL) delete pod training --wait=false >/dev/null
	@echo; echo "== 7. One A100 on demand: by size, whole, MIG; nothing changes but pods"
	@KUBECTL="$(BIN)/kubectl --kubeconfig $$($(BIN)/divvy lab kubeconfig)" DIVVY=$(BIN)/divvy STACK=lab IMAGE=$(DEMO_WORKLOADS) demo/on-demand.sh
	@echo; echo "== Done. The report: $(CURDIR)/out/conformance/report.html"
	@echo "   Try next:"
	@echo "     edit a profile of stacks/Pulumi.lab.yaml, for example research to cern-mix, then"
	@echo "     $(BIN)/divvy diff HEAD lab"
	@echo "     demo/deploy.sh && $(BIN)/divvy verify -s lab --exclusive"
	@echo "     $(DEMO_KUBECTL) describe node gpu-a100"
	@echo "     make demo-down"

demo-pulumi:       ## the same with Pulumi, which it builds first
	@$(PYTHON) -m lab.setup pulumi
	@$(MAKE) --no-print-directory demo

demo-down:         ## and away with it
	@$(BIN)/divvy lab down
	@rm -rf build/demo-pulumi

test: setup        ## every commit: pure tests first, then five lanes at once
	@$(LANES) -m "$(ALONE) and not lab and not thorough" -m "$(ALONE) and lab and not thorough" \
		-m "shared_lab and not thorough" -m "agent_process and not second_lane and not thorough" \
		-m "agent_process and second_lane and not thorough"

test-all: setup-all ## everything: sanitizers, long walks, every fault, the wheel, random programs, the mixed lab
	@DIVVY_THOROUGH=1 $(if $(CONTINUE),DIVVY_PASSED=$(CURDIR)/out/passed-$$(git rev-parse HEAD)) $(LANES) --at-once 4 -m "$(ALONE) and not lab" \
		--second-lab "shared_lab and second_lane" -m "shared_lab and not second_lane" \
		-m "$(ALONE) and lab and not second_lane" -m "$(ALONE) and lab and second_lane" \
		-m "agent_process and not second_lane" -m "agent_process and second_lane"

unit:              ## what needs neither root nor the lab
	@$(PYTHON) -m lab.setup python
	@$(BIN)/pytest -m "not lab and not hardware"

lint:              ## format, rules, types, directions of imports
	@$(PYTHON) -m lab.setup python
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: setup       ## measure; the lab is down afterwards
	@for each in agent lab limiter no_op plan claim_packing claim_scheduling claims; do \
		echo "== $$each"; $(BIN)/python -m "lab.benchmarks.$$each" || exit 1; done
	@$(BIN)/divvy lab down

field: setup       ## NVIDIA's device plugin and DRA driver under our checks; writes docs/field.md; KEEP=whole leaves that one up
	@DIVVY_LAB=field $(BIN)/python -m lab.interop $(if $(KEEP),--keep "$(KEEP)")
	@$(BIN)/python -m docs.generate

field-move: setup  ## From NVIDIA's DRA driver and plugin to Divvy and back, node by node, as docs/coming-from.md says
	@DIVVY_LAB=field $(BIN)/python -m lab.interop.move

hardware-kit:      ## one folder that shows on a machine with a GPU, as root, what Divvy does there
	@$(PYTHON) -m lab.setup python
	@$(BIN)/python -m lab.kit.pack

dist:              ## what can be published of the last commit, in dist/; KEY=FILE signs it, BASE=IMAGE adds the agent's image, for PLATFORMS
	@$(PYTHON) -m lab.setup python
	@$(BIN)/python -m release $(if $(KEY),--key "$(KEY)") $(if $(BASE),--base "$(BASE)") \
		$(PLATFORMS:%=--platform %)

docs:              ## the site, in build/site
	@$(MAKE) --no-print-directory build/docs/bin/mkdocs build/docs/mermaid.min.js
	@NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs build --strict
	@echo "build/site/index.html"

MERMAID := mermaid-11.17.2
MERMAID_SHA512 := \
  57a2b70bc101744b0f1595d228c25eea9a50384371b87011afd1af1d7e21878e\
  e501b84c443f6a7f8a042bb2e869143150b31af34feab798073bbdda0a578106

build/docs/mermaid.min.js: build/docs/bin/mkdocs
	@cd build/docs && npm pack --silent $(subst -,@,$(MERMAID)) >/dev/null
	@cd build/docs && echo "$(subst $() ,,$(MERMAID_SHA512))  $(MERMAID).tgz" | sha512sum --quiet --check
	@cd build/docs && tar -xzf $(MERMAID).tgz --strip-components=2 --touch package/dist/mermaid.min.js

build/docs/bin/mkdocs: requirements/docs.txt
	@$(PYTHON) -m venv build/docs
	@build/docs/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

clean:             ## the lab and what was generated in this tree; the cache of built tools stays
	@if [ "$$(id -u)" = 0 ] && [ -x $(BIN)/divvy ]; then $(BIN)/divvy lab down; fi
	@rm -rf .venv build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@rm -f divvy/agent/kubelet/api/*_pb2*.py divvy/agent/kubelet/api/*_pb2.pyi
	@if [ -f lab/simulator/Makefile ]; then $(MAKE) --no-print-directory -C lab/simulator clean; fi
	@$(PYTHON) -c 'from lab.cluster.paths import cache; print("The cache stays:", cache())'
