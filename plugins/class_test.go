package plugins_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/plugins"
)

// The parts of manifests that may matter to a class.
func chats(m *abi.Manifest) {
	m.Services = append(m.Services, abi.Service{Name: "C", Methods: []abi.Method{{Name: "chat", Kind: abi.KindChat, Model: "default"}}})
}

func handles(m *abi.Manifest) {
	m.Services = append(m.Services, abi.Service{Name: "H", Methods: []abi.Method{{Name: "run", Kind: abi.KindHandler, Export: "run"}}})
}

func givesIDs(m *abi.Manifest)    { m.DefaultMemoryID = &abi.DefaultMemoryID{Export: "id"} }
func readsHeader(m *abi.Manifest) { m.DefaultMemoryID = &abi.DefaultMemoryID{From: abi.FromSubject} }
func asksModels(m *abi.Manifest)  { m.Capabilities.Models = []string{"default"} }
func asksOthers(m *abi.Manifest)  { m.Capabilities.Call = []string{"billing/*"} }
func shares(m *abi.Manifest)      { m.MemoryNamespace = "pool" }

func allImports() []string {
	var all []string
	for _, f := range abi.Imports() {
		all = append(all, abi.Module+"."+f.Name)
	}
	for _, f := range abi.WASIImports() {
		all = append(all, abi.WASIModule+"."+f.Name)
	}
	return all
}

func TestClass(t *testing.T) {
	type parts = []func(*abi.Manifest)
	const call = abi.Module + ".call"
	without := slices.DeleteFunc(allImports(), func(name string) bool { return name == call })
	for caseName, tc := range map[string]struct {
		path     string
		imports  []string
		manifest parts
		want     plugins.Class
	}{
		"a prompt plugin is inert, whatever it asks for":             {sandbox.PathPrompt, nil, parts{chats, asksModels, asksOthers, shares}, plugins.ClassInert},
		"code that imports nothing is pure, whatever it asks for":    {sandbox.PathReset, nil, parts{chats, handles, givesIDs, asksModels, asksOthers, shares}, plugins.ClassPure},
		"code that imports all but `call` is pure":                   {sandbox.PathReset, without, parts{chats, handles, givesIDs, asksModels, asksOthers, shares}, plugins.ClassPure},
		"code that is only initialised is pure, as nothing answers":  {sandbox.PathPlain, allImports(), parts{chats, readsHeader, asksModels, asksOthers}, plugins.ClassPure},
		"a handler that may call the host has chat memory unasked":   {sandbox.PathReset, []string{call}, parts{handles}, plugins.ClassChat},
		"so has one with models":                                     {sandbox.PathImage, []string{call}, parts{handles, chats, asksModels}, plugins.ClassChat},
		"so has a function that gives memory ids":                    {sandbox.PathPlain, []string{call}, parts{givesIDs, chats}, plugins.ClassChat},
		"a shared namespace is chat memory, too":                     {sandbox.PathReset, allImports(), parts{handles, shares}, plugins.ClassChat},
		"a handler that asks for others' methods and can call them":  {sandbox.PathReset, []string{call}, parts{handles, asksOthers}, plugins.ClassTools},
		"a memory id function that asks for others' methods":         {sandbox.PathReset, []string{call}, parts{givesIDs, chats, asksOthers}, plugins.ClassTools},
		"everything that there is gives no network":                  {sandbox.PathReset, allImports(), parts{handles, chats, givesIDs, asksModels, asksOthers, shares}, plugins.ClassTools},
		"an import of another module that is called `call` is none":  {sandbox.PathReset, []string{abi.WASIModule + ".call"}, parts{handles, asksOthers}, plugins.ClassPure},
		"streams have no answers yet, so their imports give nothing": {sandbox.PathReset, []string{abi.Module + ".open", abi.Module + ".next", abi.Module + ".send", abi.Module + ".emit"}, parts{handles, asksOthers}, plugins.ClassPure},
	} {
		t.Run(caseName, func(t *testing.T) {
			var m abi.Manifest
			for _, part := range tc.manifest {
				part(&m)
			}
			if got := plugins.ClassOf(m, sandbox.Report{Path: tc.path, Imports: tc.imports}); got != tc.want {
				t.Errorf("it is %s, want %s", got, tc.want)
			}
		})
	}
}

// TestMoreNeverLowersAClass builds manifests and imports up, part by part, in
// random orders.
func TestMoreNeverLowersAClass(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	rank := func(c plugins.Class) int {
		i := slices.Index(plugins.Classes(), c)
		if i < 0 {
			t.Fatalf("%q is not a class", c)
		}
		return i
	}
	seen := map[plugins.Class]bool{}
	for range 500 {
		var m abi.Manifest
		code := sandbox.Report{Path: sandbox.PathPrompt}
		before := plugins.ClassOf(m, code)
		steps := []func(){func() { code.Path = sandbox.PathReset }}
		for _, part := range []func(*abi.Manifest){chats, handles, givesIDs, asksModels, asksOthers, shares} {
			steps = append(steps, func() { part(&m) })
		}
		for _, name := range allImports() {
			steps = append(steps, func() { code.Imports, code.Path = append(code.Imports, name), sandbox.PathReset })
		}
		random.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		for _, step := range steps {
			step()
			now := plugins.ClassOf(m, code)
			if rank(now) < rank(before) {
				t.Fatalf("%+v with %v is %s, and was %s with less", m, code.Imports, now, before)
			}
			before = now
			seen[now] = true
		}
	}
	if want := []plugins.Class{plugins.ClassPure, plugins.ClassChat, plugins.ClassTools}; len(seen) < len(want) {
		t.Errorf("only %v were seen", seen)
	}
}

// TestEveryClassSaysWhatItReaches, and each something of its own.
func TestEveryClassSaysWhatItReaches(t *testing.T) {
	told := map[string]plugins.Class{plugins.Class("of-tomorrow").Reach(): "of-tomorrow"}
	for _, c := range plugins.Classes() {
		if other, ok := told[c.Reach()]; ok || c.Reach() == "" {
			t.Errorf("%s reaches %q, as %s does", c, c.Reach(), other)
		}
		told[c.Reach()] = c
	}
}
