package host_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/host"
)

// faultsOf returns what is wrong with the default configuration after a change.
func faultsOf(change func(*host.Config)) []string {
	cfg := host.DefaultConfig()
	change(&cfg)
	if err := cfg.Validate(); err != nil {
		return strings.Split(err.Error(), "\n")
	}
	return nil
}

func TestSettingsAreCheckedAndFaultsNameThem(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*host.Config)
		faults []string // how each begins
	}{
		"histories that never expire": {func(c *host.Config) { c.Memory.HistoryIdleTTL = 0 }, nil},
		"histories that outlive every turn": {func(c *host.Config) {
			c.Memory.HistoryIdleTTL = c.Limits.Timeout + 1
		}, nil},
		"histories that could expire under a turn": {func(c *host.Config) {
			c.Memory.HistoryIdleTTL = c.Limits.Timeout
		}, []string{"memory.historyIdleTtl: it must be 0 (never) or more than limits.timeout (2m0s)"}},
		"a negative time to live":   {func(c *host.Config) { c.Memory.HistoryIdleTTL = -1 }, []string{"memory.historyIdleTtl: "}},
		"no scrubs but at shutdown": {func(c *host.Config) { c.Memory.ScrubInterval = 0 }, nil},
		"a scrub a minute":          {func(c *host.Config) { c.Memory.ScrubInterval = time.Minute }, nil},
		"scrubs all the time": {func(c *host.Config) {
			c.Memory.ScrubInterval = time.Minute - 1
		}, []string{"memory.scrubInterval: it must be 0 (at shutdown only) or at least 1m0s"}},
		"a negative interval":        {func(c *host.Config) { c.Memory.ScrubInterval = -1 }, []string{"memory.scrubInterval: "}},
		"records that are not kept":  {func(c *host.Config) { c.Memory.EvictionsKept = 0 }, []string{"memory.evictionsKept: it must be positive"}},
		"no records":                 {func(c *host.Config) { c.Limits.EvictionRecords = 0 }, []string{"limits.evictionRecords: it must be positive"}},
		"no repeatable requests":     {func(c *host.Config) { c.Limits.IdempotencyKeys = -1 }, []string{"limits.idempotencyKeys: it must be positive"}},
		"answers without bytes":      {func(c *host.Config) { c.Limits.IdempotencyBytes = 0 }, []string{"limits.idempotencyBytes: it must be positive"}},
		"histories without messages": {func(c *host.Config) { c.Limits.MessagesPerHistory = 0 }, []string{"limits.messagesPerHistory: it must be positive"}},
		"windows without bytes":      {func(c *host.Config) { c.Limits.WindowBytes = 0 }, []string{"limits.windowBytes: it must be positive"}},
		"imports without bytes":      {func(c *host.Config) { c.Limits.ImportBytes = -1 }, []string{"limits.importBytes: it must be positive"}},
		"no room for an import":      {func(c *host.Config) { c.Limits.BodyBytes = 32 << 20 }, []string{"limits.bodyBytes: it must be at least limits.importBytes (67108864)"}},
		"guests without fuel":        {func(c *host.Config) { c.Sandbox.Fuel = 0 }, []string{"sandbox.fuel: it is 0 and must be from 1000000"}},
		"a negative number of slots": {func(c *host.Config) { c.Sandbox.Slots = -1 }, []string{"sandbox.slots: it is -1 and must be from 0"}},
		"no memory to compile in":    {func(c *host.Config) { c.Sandbox.CompileMemory = 1 << 20 }, []string{"sandbox.compileMemory: it is 1048576"}},
		"no time to compile in":      {func(c *host.Config) { c.Sandbox.CompileTime = time.Millisecond }, []string{"sandbox.compileTime: it is 1ms and must be from 1s to 24h0m0s"}},
		"admissions without time":    {func(c *host.Config) { c.Sandbox.AdmitTimeout = 0 }, []string{"sandbox.admitTimeout: it is 0s"}},
		"several of guests":          {func(c *host.Config) { c.Sandbox.HostCalls, c.Sandbox.Idle = 0, -1 }, []string{"sandbox.hostCalls: ", "sandbox.idle: "}},
		"several faults at once":     {func(c *host.Config) { c.Memory = host.Memory{ScrubInterval: 1}; c.Limits.WindowBytes = 0 }, []string{"memory.scrubInterval: ", "memory.evictionsKept: ", "limits.windowBytes: "}},
	} {
		t.Run(name, func(t *testing.T) {
			got := faultsOf(c.change)
			if len(got) != len(c.faults) {
				t.Fatalf("faults are %q, want %q", got, c.faults)
			}
			for n, want := range c.faults {
				if !strings.HasPrefix(got[n], want) {
					t.Errorf("fault %d is %q, want %q", n+1, got[n], want)
				}
			}
		})
	}
}

func TestTheDefaultsOfMemoryAreThoseOfTheSpecification(t *testing.T) {
	c := host.DefaultConfig()
	if got, want := fmt.Sprint(c.Memory), fmt.Sprint(host.Memory{ScrubInterval: 24 * time.Hour, EvictionsKept: 7 * 24 * time.Hour}); got != want || c.Limits.EvictionRecords != 10_000 {
		t.Errorf("they are %s, %d records", got, c.Limits.EvictionRecords)
	}
}
