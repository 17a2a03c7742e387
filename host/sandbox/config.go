package sandbox

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"time"

	"github.com/carrelhost/carrel/host/sandbox/module"
)

// Config configures a Sandbox. The zero value of a field is its default.
type Config struct {
	Module module.Limits // of what is admitted; zero = module.DefaultLimits

	Slots        int           // guests on a CPU at once; 0 = twice GOMAXPROCS
	AdmitTimeout time.Duration // for _initialize and carrel_describe together; 0 = 5 s
	CloseTimeout time.Duration // how long Close waits for admissions and openings; 0 = 10 s
	Fuel         int64         // units of work of one call, each of a nanosecond or less; 0 = 1,000,000,000,000
	Idle         time.Duration // after which an instance that nobody uses gives its memory back; 0 = 10 s
	OutputBytes  int           // of one call's result; 0 = 1 MiB
	LogBytes     int           // of one call's log lines and stderr; 0 = 64 KiB
	HostCalls    int           // in one call; 0 = 10,000
	ResultBytes  int           // of host call results that one call holds at once; 0 = 16 MiB

	Now    func() time.Time // the guests' clock; nil = time.Now
	Random io.Reader        // the guests' randomness, used concurrently; nil = crypto/rand.Reader
}

const mostBytes = 1 << 30 // of any configured bound; lengths cross the guest boundary in 32 bits

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
	if c.Fuel == 0 {
		c.Fuel = 1_000_000_000_000
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
	if c.Idle < 0 {
		faults = append(faults, fmt.Errorf("sandbox: Idle is %v, it must be positive", c.Idle))
	}
	if c.Fuel < 0 || c.Fuel > math.MaxInt64/2 {
		faults = append(faults, fmt.Errorf("sandbox: Fuel is %d, it must be from 1 to %d", c.Fuel, math.MaxInt64/2))
	}
	for _, f := range []struct {
		name     string
		value    *int
		standard int
	}{
		{"Slots", &c.Slots, 2 * runtime.GOMAXPROCS(0)},
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
