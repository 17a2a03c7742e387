package plugins

import (
	"slices"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
)

// Class is the most that a plugin's code can reach, whatever its author had in
// mind: what both the functions that it imports and its manifest allow. A
// grant of the tenant's owner may be missing to it still.
type Class string

// The classes, from the least to the most.
const (
	ClassInert   Class = "inert"
	ClassPure    Class = "pure"
	ClassChat    Class = "chat"
	ClassTools   Class = "tools"
	ClassNetwork Class = "network"
)

// Classes returns every class in order: each can reach what those before it
// can. The caller owns the result.
func Classes() []Class {
	return []Class{ClassInert, ClassPure, ClassChat, ClassTools, ClassNetwork}
}

// Reach says what code of the class can reach, and that of no class before it.
func (c Class) Reach() string {
	switch c {
	case ClassInert:
		return "nothing: there is no code, and chat methods run in the host"
	case ClassPure:
		return "its own input, output, log, clock and randomness"
	case ClassChat:
		return "models, its own methods and chat memory"
	case ClassTools:
		return "methods of other plugins"
	case ClassNetwork:
		return "hosts on the network; no manifest can ask for it yet"
	default:
		return "what a newer host knows"
	}
}

// ClassOf returns the class of code with a manifest that were admitted
// together.
//
// Every power over anything outside a call is an operation of the import
// `call`, which answers in functions that the manifest names and nowhere else:
// not in initialisation, and not in carrel_describe. The operations on chat
// memory need no capability, so whoever can use the import has chat memory.
// Models add nothing to that; the methods of other plugins do.
func ClassOf(manifest abi.Manifest, code sandbox.Report) Class {
	asks := namesFunctions(manifest) && slices.Contains(code.Imports, abi.Module+".call")
	switch {
	case asks && len(manifest.Capabilities.Call) > 0:
		return ClassTools
	case asks:
		return ClassChat
	case code.Path != sandbox.PathPrompt:
		return ClassPure
	default:
		return ClassInert
	}
}

// namesFunctions reports whether calls of the plugin reach code of its own.
func namesFunctions(m abi.Manifest) bool {
	if m.DefaultMemoryID != nil && m.DefaultMemoryID.Export != "" {
		return true
	}
	return slices.ContainsFunc(m.Services, func(s abi.Service) bool {
		return slices.ContainsFunc(s.Methods, func(method abi.Method) bool { return method.Export != "" })
	})
}
