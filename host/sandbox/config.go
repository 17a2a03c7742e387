package sandbox

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"runtime"
	"time"

	"github.com/carrelhost/carrel/host/sandbox/marker"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// Config configures a Sandbox. The zero value of a field is its default.
type Config struct {
	Module module.Limits // of what is admitted; zero = module.DefaultLimits

	// CompileCommand starts a process that calls CompileChild with the
	// arguments that are added to it. Empty: modules are compiled in this
	// process, which nothing bounds or stops. It needs a CacheDir.
	CompileCommand []string
	CompileMemory  int64         // bytes of memory of such a process; 0 = 3 GiB
	CompileCPU     time.Duration // that such a process computes; 0 = 30 s
	CompileWall    time.Duration // that such a process takes; 0 = 60 s

	// CacheDir is the directory of compiled code, which New makes if it is
	// missing. It is the sandbox's alone: what else is in it is removed. One
	// sandbox at a time may use it. Empty: code is in memory only.
	CacheDir   string
	CacheBytes int64 // of all code in CacheDir; 0 = 2 GiB

	// SnapshotDir is the directory of the states that calls begin with, so
	// that no module is initialised again after a restart. As CacheDir, which
	// it needs. Empty: they are in memory only.
	SnapshotDir   string
	SnapshotBytes int64        // of all states in SnapshotDir; 0 = 1 GiB
	Log           *slog.Logger // what the operator should know of the two directories; nil = nobody is told

	// Marks says in a file which guests run, for whoever looks after a crash of
	// this process. It is closed after the sandbox. nil: nobody looks.
	Marks *marker.File

	Slots        int           // guests on a CPU at once; 0 = one more than there are CPUs, or threads of Go's scheduler if these are fewer
	AdmitTimeout time.Duration // of an admission for _initialize and carrel_describe, as often as they run, and as much for a warm-up; 0 = 5 s
	CloseTimeout time.Duration // how long Close waits for admissions and openings; 0 = 10 s
	Fuel         int64         // units of work of one call, each of a nanosecond or less; 0 = 1,000,000,000,000
	Idle         time.Duration // after which an instance that nobody uses gives its memory back; 0 = 10 s
	IdleBytes    int64         // that instances of all plugins keep between calls; 0 = 512 MiB
	OutputBytes  int           // of one call's result; 0 = 1 MiB
	LogBytes     int           // of one call's log lines and stderr; 0 = 64 KiB
	HostCalls    int           // in one call; 0 = 10,000
	ResultBytes  int           // of host call results that one call holds at once; 0 = 16 MiB

	Now    func() time.Time // the guests' clock; nil = time.Now
	Random io.Reader        // the guests' randomness, used concurrently; nil = crypto/rand.Reader
}

const mostBytes = 1 << 30 // of any configured bound; lengths cross the guest boundary in 32 bits

// DefaultConfig returns what New makes of the zero Config, but for Slots, which
// depend on the process.
func DefaultConfig() Config {
	cfg, err := Config{}.complete()
	if err != nil {
		panic(err) // a default is wrong
	}
	cfg.Slots = 0
	return cfg
}

// complete fills in the defaults and judges the rest.
func (c Config) complete() (Config, error) {
	if c.Module == (module.Limits{}) {
		c.Module = module.DefaultLimits()
	}
	if c.AdmitTimeout == 0 {
		c.AdmitTimeout = 5 * time.Second
	}
	if c.CloseTimeout == 0 {
		c.CloseTimeout = 10 * time.Second
	}
	if c.Idle == 0 {
		c.Idle = 10 * time.Second
	}
	if c.IdleBytes == 0 {
		c.IdleBytes = 512 << 20
	}
	if c.Fuel == 0 {
		c.Fuel = 1_000_000_000_000
	}
	if c.CompileMemory == 0 {
		c.CompileMemory = 3 << 30
	}
	if c.CompileCPU == 0 {
		c.CompileCPU = 30 * time.Second
	}
	if c.CompileWall == 0 {
		c.CompileWall = time.Minute
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = 2 << 30
	}
	if c.SnapshotBytes == 0 {
		c.SnapshotBytes = 1 << 30
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	var faults []error
	if c.AdmitTimeout < 0 {
		faults = append(faults, fmt.Errorf("sandbox: AdmitTimeout is %v, it must be positive", c.AdmitTimeout))
	}
	if c.CloseTimeout < 0 {
		faults = append(faults, fmt.Errorf("sandbox: CloseTimeout is %v, it must be positive", c.CloseTimeout))
	}
	if len(c.CompileCommand) > 0 && c.CacheDir == "" {
		faults = append(faults, errors.New("sandbox: CompileCommand needs a CacheDir, through which it hands over what it compiled"))
	}
	if c.SnapshotDir != "" && c.CacheDir == "" {
		faults = append(faults, errors.New("sandbox: SnapshotDir needs a CacheDir: states are named after the compiled code that made them"))
	}
	if c.SnapshotBytes < 0 {
		faults = append(faults, fmt.Errorf("sandbox: SnapshotBytes is %d, it must be positive", c.SnapshotBytes))
	}
	if c.CompileMemory < 0 || c.CompileCPU < 0 || c.CompileWall < 0 || c.CacheBytes < 0 {
		faults = append(faults, fmt.Errorf("sandbox: CompileMemory is %d, CompileCPU %v, CompileWall %v, CacheBytes %d; they must be positive",
			c.CompileMemory, c.CompileCPU, c.CompileWall, c.CacheBytes))
	}
	if c.Idle < 0 || c.IdleBytes < 0 {
		faults = append(faults, fmt.Errorf("sandbox: Idle is %v, IdleBytes %d; they must be positive", c.Idle, c.IdleBytes))
	}
	if c.Fuel < 0 || c.Fuel > math.MaxInt64/2 {
		faults = append(faults, fmt.Errorf("sandbox: Fuel is %d, it must be from 1 to %d", c.Fuel, math.MaxInt64/2))
	}
	for _, f := range []struct {
		name     string
		value    *int
		standard int
	}{
		{"Slots", &c.Slots, min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) + 1},
		{"OutputBytes", &c.OutputBytes, 1 << 20},
		{"LogBytes", &c.LogBytes, 64 << 10},
		{"HostCalls", &c.HostCalls, 10_000},
		{"ResultBytes", &c.ResultBytes, 16 << 20},
	} {
		switch {
		case *f.value == 0:
			*f.value = f.standard
		case *f.value < 0 || *f.value > mostBytes:
			faults = append(faults, fmt.Errorf("sandbox: %s is %d, it must be from 1 to %d", f.name, *f.value, mostBytes))
		}
	}
	return c, errors.Join(faults...)
}
