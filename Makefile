# `make demo` and `make test` do everything on a fresh machine: a virtual environment, the installs, the run.
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
BIN = $(VENV)/bin
# what the examples train with, beside plain torch
FRAMEWORKS = transformers accelerate peft lightning torchmetrics tensorboard bitsandbytes datasets
# what the accuracy page compares, and estimators that are asked about the same rows
TRUTH ?= ../shared/truth
CASES ?= 10000
COMPARED = torchvision timm diffusers torchinfo torchsummary torch-kitsune
# a card's name and an optimizer are all that a prediction needs beside the model
DEMO = $(BIN)/memlens predict --gpu "RTX 4090" --optimizer adamw

.PHONY: demo test unit lint bench accuracy fuzz clean

demo: $(VENV)/demo
	$(DEMO) examples/vgg16.py:vgg16 --input 3x224x224 --batch-size 32
	$(DEMO) examples/resnet50.py:resnet50 --input 3x224x224 --batch-size 64

test: $(VENV)/dev lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

unit: $(VENV)/dev
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow and not shared and not zoo"

lint: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/dev
	$(BIN)/python -m benchmarks.predict_speed
	$(BIN)/python -m benchmarks.snapshot_speed
	$(BIN)/python -m benchmarks.lines
	$(BIN)/python -m benchmarks.run_overhead

accuracy: $(VENV)/accuracy
	$(BIN)/python -m benchmarks.accuracy $(TRUTH)

# damaged and hostile files against every reader; CASES=100000 for all
fuzz: $(VENV)/dev
	$(BIN)/python -m benchmarks.fuzz --cases $(CASES)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

$(VENV)/demo: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet "$(TORCH)" numpy
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/dev: $(VENV)/demo
	$(BIN)/pip install --quiet --editable ".[dev,exact]" "$(TORCH)" $(FRAMEWORKS)
	touch $@

$(VENV)/accuracy: $(VENV)/dev
	$(BIN)/pip install --quiet "$(TORCH)" $(COMPARED)
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist
