package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/internal/scaffold"
)

// withBuildHint adds to a refusal of exports how those of a Go project come to
// be what its declaration says. path is the module's.
func withBuildHint(path string, err error) error {
	var faults []carrel.Fault
	if p, ok := errors.AsType[*client.Problem](err); ok {
		faults = p.Errors
	} else if e, ok := errors.AsType[*carrel.Error](err); ok {
		faults = e.Faults
	}
	ofExport := func(f carrel.Fault) bool { return strings.HasSuffix(f.Pointer, "/export") }
	if !slices.ContainsFunc(faults, ofExport) || !scaffold.HasExportsFile(path) {
		return err
	}
	return fmt.Errorf("%w\nthe exports of a Go plugin are in carrel_exports.go, which may be older than its declaration; write it anew: carrel build %s",
		err, filepath.Dir(path))
}
