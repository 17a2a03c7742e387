package main

import (
	"path/filepath"
	"testing"
)

func TestTheTourEndsWithALineThatStartsAHost(t *testing.T) {
	for program, want := range map[string]string{
		filepath.Join("usr", "local", "bin", "carrel"):                    "carrel serve",
		filepath.Join("tmp", "go-build2718281828", "b001", "exe", "host"): "go build -o carrel ./cmd/host && ./carrel serve",
		"": "carrel serve",
	} {
		if got := serveLine(program); got != want {
			t.Errorf("%q: got %q, want %q", program, got, want)
		}
	}
}
