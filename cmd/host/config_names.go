package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/spelling"
)

// variablePrefix begins the names of all variables that are ours.
const variablePrefix = "CARREL_"

// clientVariables are those that commands read besides a host's settings, and
// the one by which `carrel build` asks a plugin for its manifest.
var clientVariables = []string{"HOST", "KEY", "MANIFEST_FILE"}

// unknownVariables reports every variable that begins as ours do and that
// nothing reads. Variables of tests are not ours, and neither are those that
// a container of a cluster gets for a service by the name of carrel, nor those
// that a provider's key is in.
func unknownVariables(cfg host.Config, e env, names []string) error {
	var faults []error
	for _, variable := range slices.Sorted(maps.Keys(e.vars)) {
		name, ours := strings.CutPrefix(variable, variablePrefix)
		switch {
		case !ours || e.vars[variable] == "" || slices.Contains(names, name) || isKeyOf(cfg, variable):
			continue
		case strings.HasPrefix(name, "TEST_"), strings.HasPrefix(name, "SERVICE_"), strings.HasPrefix(name, "PORT_"),
			name == "PORT" && strings.Contains(e.vars[variable], "://"):
			continue
		}
		faults = append(faults, fmt.Errorf("%s: %s", variable, noVariable(name, names)))
	}
	return errors.Join(faults...)
}

func isKeyOf(cfg host.Config, variable string) bool {
	for _, p := range cfg.Providers {
		if p.APIKey == "env:"+variable {
			return true
		}
	}
	return false
}

// noVariable says that nothing reads a variable. Names have a _ between words,
// which is what they are written without most.
func noVariable(name string, names []string) string {
	const text = "there is no such variable"
	bare := func(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "_", "")) }
	for _, n := range names {
		if bare(n) == bare(name) {
			return text + "; did you mean " + variablePrefix + n + "?"
		}
	}
	if near := spelling.Nearest(name, names); near != "" {
		return text + "; did you mean " + variablePrefix + near + "?"
	}
	return text + ", or this host does not have it yet"
}

// noSetting says that a configuration file has no such setting.
func noSetting(path string) string {
	const text = "there is no such setting"
	name := path[strings.LastIndexByte(path, '.')+1:]
	near := spelling.Nearest(name, settingsBelow(strings.TrimSuffix(strings.TrimSuffix(path, name), ".")))
	if near == "" {
		return text + ", or this host does not have it yet"
	}
	return text + "; did you mean `" + near + "`?"
}

// settingsBelow returns the names of the settings below a path, such as limits
// or models.default; those of the file itself are below "".
func settingsBelow(path string) []string {
	if first, _, below := strings.Cut(path, "."); below {
		path = first + ".some"
	}
	cfg := host.DefaultConfig()
	cfg.Models = map[string]host.Model{"some": {Model: "some", Timeout: 1}}
	cfg.Providers = map[string]host.Provider{"some": {APIKey: "some"}}
	var doc yaml.Node
	if err := doc.Encode(cfg); err != nil { // what is printed can be encoded
		return nil
	}
	return namesBelow(&doc, strings.FieldsFunc(path, func(r rune) bool { return r == '.' }))
}

func namesBelow(n *yaml.Node, path []string) []string {
	var names []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if len(path) > 0 && name == path[0] {
			return namesBelow(n.Content[i+1], path[1:])
		}
		names = append(names, name)
	}
	if len(path) > 0 {
		return nil
	}
	return names
}
