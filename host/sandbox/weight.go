package sandbox

import (
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// What the engine keeps, in bytes. Its types are not public: these were
// measured, and are tested against what the process uses.
const (
	runtimeBytes   = 128 << 10 // for a runtime: the host functions, and trampolines
	decodedTimes   = 3         // as much as the bytes of a module, for the module as it was read
	compiledTimes  = 4         // as much as the bytes of a module, for machine code that no file holds
	namedBytes     = 128       // for a function's name
	instanceBytes  = 4 << 10   // for an instance
	importBytes    = 48
	globalBytes    = 160
	referenceBytes = 8  // for an element of a table
	elementBytes   = 56 // for a function that an element segment refers to
)

// weigh sets the bytes of a module's code and of its instances.
func (c *code) weigh(m *module.Module, w *module.Rewritten) {
	c.bytes = c.machineBytes
	if c.bytes == 0 {
		c.bytes = compiledTimes * int64(len(w.Code))
	}
	c.bytes += runtimeBytes + decodedTimes*int64(len(w.Code))
	n := m.Counts()
	c.instanceBytes = instanceBytes + int64(importBytes*n.Imports+globalBytes*n.Globals+
		referenceBytes*n.TableElements+elementBytes*n.Elements)
}

// bytes returns what a program takes besides its code.
func (p *program) bytes() int64 {
	n := int64(8 * len(p.values))
	if p.image != nil {
		n += int64(p.image.Bytes())
	}
	return n + int64(namedBytes*len(p.rewritten.Names))
}

// LoadedBytes returns how many bytes of memory the code and the images of all
// open plugins take, and those of the latest admission. What plugins share is
// counted once. Instances are not among them: see Config.IdleBytes.
func (s *Sandbox) LoadedBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := int64(0)
	for _, c := range s.codes {
		sum += c.bytes
	}
	programs := make(map[*program]struct{}, len(s.programs)+1)
	if p := s.latest.program; p != nil {
		programs[p] = struct{}{}
	}
	for p := range s.plugins {
		programs[p.program] = struct{}{}
	}
	for p := range programs {
		sum += p.bytes()
	}
	return sum
}
