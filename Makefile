# Everything that a contributor runs. CONTRIBUTING.md says what needs what.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# FUZZTIME is how long each fuzz target runs.
FUZZTIME ?= 30s

# ARGS are the flags of the demo.
ARGS ?=

# Nothing stands in for a real server and nothing is skipped.
REAL := FENCEKIT_REQUIRE_REAL=1

.PHONY: help demo up down setup test lint bench fuzz fault

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile

demo: ## see it at work; ARGS=-unguarded for the same without the kit, ARGS=-keep to look around
	scripts/setup.sh demo
	go run ./samples/quickstart $(ARGS)

up: ## Temporal, Postgres and Redis by docker compose, on the usual ports
	docker compose up --detach --wait

down: ## end them
	docker compose down

setup: ## install or build the servers that the tests start, or say how
	scripts/setup.sh

test: setup ## every test, with the race detector, on real servers
	$(REAL) go test -race -parallel 8 -timeout 40m ./...

lint: ## golangci-lint in the pinned version, over every module
	scripts/lint.sh

bench: setup ## speed beside plain Redis, other lock libraries and unguarded activities, as ratios
	cd bench && go run . && go run . -rtt 500us && go run . -temporal -rounds 40

fuzz: ## every fuzz target for FUZZTIME (30s) each
	FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

fault: setup ## the fault tests at full length
	$(REAL) FENCEKIT_FAULT=long go test -race -timeout 60m -run Fault -v ./...
