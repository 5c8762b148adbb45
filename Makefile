GO ?= go

.PHONY: build test
build:
	$(GO) build -trimpath -o bin/ ./cmd/...
test:
	$(GO) test ./...
