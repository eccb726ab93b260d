# Each target first creates the environment .venv with the exact versions of constraints.txt, if it is missing.
SUITE ?= embedded
PYTHON ?= python3
VENV ?= .venv
READY := $(VENV)/.ready
RUN := PATH="$(abspath $(VENV))/bin:$$PATH"

.PHONY: install reproduce test test-fast test-cluster test-faults lint bench check-grid mutants ui docs audit lock

install: $(READY) ## the environment in .venv, nothing else

reproduce: $(READY) ## the whole chain of one suite: make reproduce SUITE=edge-transformer
	@$(RUN) python -m gt_bench.pipeline.reproduce $(SUITE)

test: $(READY) ## the whole test suite
	@$(RUN) python -m pytest -n 2 --dist worksteal

test-fast: $(READY) ## the tests that are not marked slow: about two minutes on two cores
	@$(RUN) python -m pytest -n 2 --dist worksteal -m "not slow and not cluster"

test-cluster: $(READY) ## sweeps on a real Slurm, which the test starts itself where it is installed
	@$(RUN) python -m pytest -m cluster

test-faults: $(READY) ## kills of every stage at random moments, and a full disk at every write: docs/reliability.md
	@$(RUN) python -m tests.faults

lint: $(READY)
	@$(RUN) ruff check . && $(RUN) ruff format --check . && $(RUN) lint-imports && $(RUN) python -m mypy
	@for suite in suites/*/; do files=$$(git ls-files "$$suite*.py"); [ -z "$$files" ] || $(RUN) python -m mypy $$files || exit 1; done

bench: $(READY) ## speed and memory of everything in benchmarks/ but fast_paths.py, which takes an hour
	@for script in $$(grep -l '"__main__"' benchmarks/*.py | grep -Ev '/(measured_process|fast_paths).py'); do echo "== $$script"; $(RUN) python $$script || exit 1; done

check-grid: $(READY) ## a short run of every cell on a miniature, compared with its golden values: make check-grid CELLS="polynormer hot/chains/hot"
	@$(RUN) python -m gt_bench.testing.check_grid $(CELLS)

mutants: $(READY) ## mistakes in code that golden values must notice: make mutants GROUPS="trainer tasks"
	@$(RUN) python -m tests.mutants $(GROUPS)

ui: $(READY) ## the tracking store in a browser, with the address of each suite: http://127.0.0.1:5000
	@$(RUN) python -m gt_bench.tracking.ui

audit: $(VENV)/audit/bin/pip-audit ## known vulnerabilities of the exact versions that are installed
	@$< -r constraints.txt --no-deps --disable-pip --strict

$(VENV)/audit/bin/pip-audit: $(READY)
	$(PYTHON) -m venv $(VENV)/audit && $(VENV)/audit/bin/pip install -q --disable-pip-version-check pip-audit

lock: constraints.txt pyproject.toml ## requirements.lock: the versions of constraints.txt with the hashes of PyPI's files, for Linux with CUDA; needs uv
	@uv pip compile -q --generate-hashes --no-annotate --python-version 3.11 --python-platform x86_64-manylinux_2_28 --all-extras \
	  -c constraints.txt --custom-compile-command "make lock" pyproject.toml -o requirements.lock

docs: $(READY) ## the pages of docs/ as a site in site/; fails if a link is broken
	@$(RUN) python -m mkdocs build --strict

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "python3 (3.11 or newer) is needed"; exit 1; }
	@echo "installing $$(grep -c == constraints.txt) packages into $(VENV), once: 3 GB with a CPU build of torch, more with CUDA; minutes by pip, less if uv is on PATH"
	$(PYTHON) -m venv $(VENV)
	@start=$$(date +%s); tools/install.sh $(VENV) \
	  && echo "installed: $$(du -sh $(VENV) | cut -f1) in $$(($$(date +%s) - start)) s"
	@touch $(READY)
