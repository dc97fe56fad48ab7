# The commands that a checkout needs most. `make docs PYTHON=python3.12` uses another interpreter.
PYTHON ?= .venv/bin/python

.PHONY: docs test

docs: ## The site, docs/_build/html/index.html. It needs the extra `docs`.
	$(PYTHON) -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

test:
	$(PYTHON) -m pytest -q
