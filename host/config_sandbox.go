package host

import (
	"fmt"
	"time"

	"github.com/carrelhost/carrel/host/sandbox"
)

// Sandbox bounds what guests use beside what their manifests allow. Errors name
// the bounds as they are named here: sandbox.fuel.
type Sandbox struct {
	Slots         int           `yaml:"slots" env:"SLOTS"`                  // guests on a CPU at once; those of one tenant are one fewer. 0 = one more than CPUs
	Fuel          int64         `yaml:"fuel" env:"FUEL"`                    // units of work of one call, each of a nanosecond or less
	OutputBytes   int           `yaml:"outputBytes" env:"OUTPUT_BYTES"`     // of one call's result
	LogBytes      int           `yaml:"logBytes" env:"LOG_BYTES"`           // of one call's log lines
	HostCalls     int           `yaml:"hostCalls" env:"HOST_CALLS"`         // of one call
	ResultBytes   int           `yaml:"resultBytes" env:"RESULT_BYTES"`     // of host calls, that one call holds at once
	AdmitTimeout  time.Duration `yaml:"admitTimeout" env:"ADMIT_TIMEOUT"`   // of a module's initialisation, and as much again of its warm-up
	CompileMemory int64         `yaml:"compileMemory" env:"COMPILE_MEMORY"` // bytes of memory of a process that compiles
	CompileTime   time.Duration `yaml:"compileTime" env:"COMPILE_TIME"`     // that it computes; it is ended after twice as long
	Idle          time.Duration `yaml:"idle" env:"IDLE"`                    // after which an instance that nobody calls gives its pages back; it ends after six times as long
	CacheBytes    int64         `yaml:"cacheBytes" env:"CACHE_BYTES"`       // of compiled code on the disk
	SnapshotBytes int64         `yaml:"snapshotBytes" env:"SNAPSHOT_BYTES"` // of states that calls begin with, on the disk
}

// defaultSandbox returns what guests have where nobody configured it.
func defaultSandbox() Sandbox {
	d := sandbox.DefaultConfig()
	return Sandbox{
		Fuel: d.Fuel, OutputBytes: d.OutputBytes, LogBytes: d.LogBytes, HostCalls: d.HostCalls, ResultBytes: d.ResultBytes,
		AdmitTimeout: d.AdmitTimeout, CompileMemory: d.CompileMemory, CompileTime: d.CompileCPU, Idle: d.Idle,
		CacheBytes: d.CacheBytes, SnapshotBytes: d.SnapshotBytes,
	}
}

// config returns the sandbox's own configuration, with these bounds and nothing
// else.
func (s Sandbox) config() sandbox.Config {
	return sandbox.Config{
		Slots: s.Slots, Fuel: s.Fuel, OutputBytes: s.OutputBytes, LogBytes: s.LogBytes, HostCalls: s.HostCalls, ResultBytes: s.ResultBytes,
		AdmitTimeout: s.AdmitTimeout, CompileMemory: s.CompileMemory, CompileCPU: s.CompileTime, CompileWall: 2 * s.CompileTime,
		Idle: s.Idle, CacheBytes: s.CacheBytes, SnapshotBytes: s.SnapshotBytes,
	}
}

// validate reports every fault, each with the path of the setting.
func (s Sandbox) validate() []error {
	const day = 24 * time.Hour
	var faults []error
	fault := func(name, format string, args ...any) {
		faults = append(faults, fmt.Errorf("sandbox."+name+": "+format, args...))
	}
	for _, b := range []struct {
		name               string
		value, least, most int64
	}{
		{"slots", int64(s.Slots), 0, 10_000},
		{"fuel", s.Fuel, 1_000_000, 1 << 60}, // below, no Go guest begins
		{"outputBytes", int64(s.OutputBytes), 1, 1 << 30},
		{"logBytes", int64(s.LogBytes), 1, 1 << 30},
		{"hostCalls", int64(s.HostCalls), 1, 1 << 30},
		{"resultBytes", int64(s.ResultBytes), 1, 1 << 30},
		{"compileMemory", s.CompileMemory, 512 << 20, 1 << 40}, // below, no Go guest compiles
		{"cacheBytes", s.CacheBytes, 1, 1 << 50},
		{"snapshotBytes", s.SnapshotBytes, 1, 1 << 50},
	} {
		if b.value < b.least || b.value > b.most {
			fault(b.name, "it is %d and must be from %d to %d", b.value, b.least, b.most)
		}
	}
	for _, b := range []struct {
		name         string
		value, least time.Duration
	}{
		{"admitTimeout", s.AdmitTimeout, time.Millisecond},
		{"compileTime", s.CompileTime, time.Second}, // the system counts no less
		{"idle", s.Idle, time.Second},
	} {
		if b.value < b.least || b.value > day {
			fault(b.name, "it is %v and must be from %v to %v", b.value, b.least, day)
		}
	}
	return faults
}
